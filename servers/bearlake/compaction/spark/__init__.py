"""Work items on Spark: one long-lived context in a lean JVM of our own. Spark carries descriptions and results, never records.

runner.py         `SparkRunner`: runs work items; starts the JVM, and restarts it if it dies
session.py        the JVM, its gateway and the SparkContext as one unit
gateway.py        the JVM's command line: any Java 17 or 21, no launcher, no shell
archive.py        records the class-data archive, which halves the start time
class_archive.py  finds the class-data archive
kubernetes.py     executors as pods: Spark's properties
pod.py            executors as pods: the program in the pod
executor.py       the code in Spark's Python workers
settings.py       settings
"""
