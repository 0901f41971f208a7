package cases;

import common.Result;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * Runs the cases whose names contain an argument (all without), several at a time, and prints a line of {@link Result}
 * for each.
 */
public final class Cases {
    private static final int AT_ONCE = 6;
    /** A case that takes longer counts as hung. */
    private static final int CASE_S = 45;
    private static final Class<?>[] GROUPS = {
        Messages.class, Headers.class, Selectors.class, Delivery.class, Acknowledgement.class, Transactions.class,
        Subscriptions.class, TemporaryDestinations.class, Browsers.class, Credit.class, Identity.class,
        Failover.class, Contexts.class, Sending.class,
    };

    private Cases() {}

    public static void main(String[] arguments) throws Exception {
        var found = new ArrayList<Method>();
        for (Class<?> group : GROUPS) {
            Method[] methods = group.getDeclaredMethods();
            Arrays.sort(methods, Comparator.comparing(Method::getName));
            for (Method method : methods) {
                if (method.isAnnotationPresent(Case.class) && wanted(named(method), arguments)) {
                    found.add(method);
                }
            }
        }
        ExecutorService runners = Executors.newFixedThreadPool(AT_ONCE, Cases::daemon);
        ExecutorService inside = Executors.newCachedThreadPool(Cases::daemon);
        List<Future<Boolean>> results = new ArrayList<>();
        for (Method method : found) {
            results.add(runners.submit(() -> run(method, inside)));
        }
        boolean good = !found.isEmpty();
        for (Future<Boolean> result : results) {
            good &= result.get();
        }
        System.exit(good ? 0 : 1);
    }

    private static Thread daemon(Runnable body) {
        var made = new Thread(body);
        made.setDaemon(true);
        return made;
    }

    private static String named(Method method) {
        return method.getDeclaringClass().getSimpleName() + "." + method.getName();
    }

    private static boolean wanted(String name, String[] arguments) {
        return arguments.length == 0 || Arrays.stream(arguments).anyMatch(name::contains);
    }

    private static boolean run(Method method, ExecutorService inside) throws InterruptedException {
        long began = System.nanoTime();
        Throwable failure = null;
        Future<?> running = inside.submit(() -> {
            try (var env = new Env(method.getName())) {
                method.invoke(null, env);
            } catch (InvocationTargetException error) {
                throw error.getCause() instanceof Exception ? (Exception) error.getCause()
                        : new ExecutionException(error.getCause());
            }
            return null;
        });
        try {
            running.get(CASE_S, TimeUnit.SECONDS);
        } catch (ExecutionException error) {
            failure = error.getCause() instanceof ExecutionException ? error.getCause().getCause() : error.getCause();
        } catch (TimeoutException error) {
            failure = new AssertionError("it hangs since " + CASE_S + " s");
            running.cancel(true);
        }
        Result.print(named(method), failure, (System.nanoTime() - began) / 1e9);
        return failure == null;
    }
}
