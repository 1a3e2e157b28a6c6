"""The Spark server of the shop: `python -m examples.cdnow.spark_app DIRECTORY`.

The whole of the business is the function `book`: from requests to rows and receipts. It runs in
the JVM; onceq commits its rows, the receipts and the removal of the requests in one transaction.
The runner starts this program, and again after each kill -9 of it: it needs to know nothing of
its former lives.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as sf

from examples.cdnow.shop import ORDERS, REPOSITORY, SPARK, RunDirectory
from examples.running.lifeline import hold_lifeline
from examples.running.status import say
from onceq.spark import Server, add, build_session, insert

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Half of the time until the first batch is Java compiling; a run is too short for the better
# code of its second compiler: 11 s of processor time instead of 20.
SETTINGS = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
TABLES = {"booked": insert(), "totals": add("customer_id", "orders", "amount")}


def book(requests: DataFrame) -> DataFrame:
    """Returns for each request its receipt, its booking, and what it adds to the totals."""
    purchase, amount = "request.", sf.col("request.amount").cast("decimal(14, 2)")
    order_id, customer_id = sf.col(f"{purchase}order_id"), sf.col(f"{purchase}customer_id")
    date, quantity = sf.col(f"{purchase}date"), sf.col(f"{purchase}quantity")
    return requests.select(
        "eid",
        sf.struct(order_id, customer_id, amount.cast("string").alias("amount")).alias("reply"),
        sf.struct(
            *(order_id, customer_id, date, quantity, amount.alias("amount")),
            sf.col("eid").cast("string").alias("eid"),
        ).alias("booked"),
        sf.struct(customer_id, sf.lit(1).alias("orders"), amount.alias("amount")).alias("totals"),
    )


def main() -> None:
    hold_lifeline()
    directory = RunDirectory(Path(sys.argv[1]))
    setup = directory.read_setup()
    server = Server(ORDERS, batch=book, tables=TABLES, name=SPARK, batch_rows=setup.batch)
    spark = build_session("cdnow", settings=SETTINGS)
    signal.signal(signal.SIGTERM, lambda *_: server.stop())
    say(ready=True)
    server.run(setup.url, repository=REPOSITORY, spark=spark, checkpoint=directory.checkpoint)
    spark.stop()


if __name__ == "__main__":
    main()
