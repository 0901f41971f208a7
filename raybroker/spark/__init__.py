"""A reader and a writer of Spark: PySpark's data source API over the handles.

``register(spark)``, and then ``spark.readStream.format("raybroker")``, ``spark.read`` and ``df.write``.  May import
``client``, ``model``, ``system``, ``tabular`` and PySpark, and no Ray.  Enter at
:class:`raybroker.spark.source.RaybrokerSource`; what a batch is and what is acknowledged is decided in
:mod:`raybroker.spark.offsets`, which is pure.
"""

try:
    from raybroker.spark.source import RaybrokerSource, register
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] not in ("pyspark", "pyarrow"):
        raise
    raise ModuleNotFoundError(
        f"raybroker.spark: {error}; it needs PySpark 4.2 or newer: pip install 'raybroker[spark]'", name=error.name
    ) from None

__all__ = ["RaybrokerSource", "register"]
