"""Parts of meters: bounded, unbiased samples, times of numbers, averages, and who comes most often."""

from __future__ import annotations

from raybroker.engine.measuring.samplers import (
    BUSIEST_MAX,
    BUSIEST_SHOWN,
    SAMPLE_EVERY,
    SAMPLE_FREE,
    SAMPLE_SMALL,
    TIMES_MAX,
    Average,
    Busiest,
    Sampling,
    SizeSample,
    Times,
)


def test_every_batch_counts_while_there_are_few() -> None:
    sample = SizeSample(Sampling())
    assert [sample.weigh(1) for _ in range(SAMPLE_FREE)] == [1] * SAMPLE_FREE


def test_of_many_small_batches_one_in_each_group_stands_for_all() -> None:
    sampling = Sampling()
    sample = SizeSample(sampling)
    groups = 500
    for _ in range(SAMPLE_FREE):
        sample.weigh(1)
    weights = [sample.weigh(1) for _ in range(groups * SAMPLE_EVERY)]
    assert set(weights) <= {0, 1, SAMPLE_EVERY}
    assert abs(sum(weights) - len(weights)) <= SAMPLE_EVERY, "together they count as many as came"
    chosen = [place % SAMPLE_EVERY for place, weight in enumerate(weights) if weight == SAMPLE_EVERY]
    assert set(chosen) == set(range(SAMPLE_EVERY)), "no place in a group is left out"
    assert sample.weigh(SAMPLE_SMALL) == 1, "a large batch is always observed"
    sampling.begin_second()
    assert sampling.free == SAMPLE_FREE


def test_a_number_was_reached_when_the_last_one_up_to_it_was() -> None:
    times = Times(10)
    times.add(5, 20)
    times.add(9, 30)
    assert [times.at(number) for number in (0, 4, 5, 8, 9, 100)] == [10, 10, 20, 20, 30, 30]
    times.drop_below(8)
    assert times.numbers == [5, 9]
    assert times.at(8) == 20


def test_times_stay_bounded_and_never_say_too_late() -> None:
    times = Times(0)
    for number in range(1, 5 * TIMES_MAX):
        times.add(number, number * 10)
        assert len(times.numbers) <= TIMES_MAX
    assert all(times.at(number) <= number * 10 for number in range(5 * TIMES_MAX))
    assert times.at(5 * TIMES_MAX - 1) == (5 * TIMES_MAX - 1) * 10, "the latest ones are exact"


def test_an_average_weighs_values_by_how_long_they_were() -> None:
    average = Average(100)
    average.set(10, 100)
    average.set(4, 130)
    assert average.average(190) == (10 * 30 + 4 * 60) // 90
    assert average.peak == 10
    assert Average(5).average(5) == 0


def test_the_busiest_are_found_among_many_and_never_counted_too_low() -> None:
    busiest = Busiest()
    for round_ in range(40):
        busiest.add(["often", None, f"rare {round_}", f"other {round_}", "often"])
    for round_ in range(2 * BUSIEST_MAX):
        busiest.add([f"once {round_}"])
    top = busiest.top()
    assert len(busiest.counts) <= BUSIEST_MAX
    assert len(top) == BUSIEST_SHOWN
    assert next(iter(top)) == "often"
    assert top["often"] >= 80
