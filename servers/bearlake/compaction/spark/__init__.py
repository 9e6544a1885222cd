"""Work items on Spark: one long-lived context in a lean JVM of our own; Spark carries descriptions and results, never records.

runner.py     `SparkRunner`: work items in, results out; starts the JVM, and starts it again when it has died
session.py    the JVM, the gateway to it and the SparkContext, as one thing that is alive or not
gateway.py    the JVM's command line: any Java 17 or 21, no launcher, no shell
archive.py    records the class-data archive that halves the start; class_archive.py finds it
kubernetes.py executors as pods: what Spark is told
pod.py        executors as pods: what runs there
executor.py   what runs in Spark's Python workers
settings.py   settings
"""
