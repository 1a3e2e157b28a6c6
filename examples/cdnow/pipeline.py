"""What comes after the work: `python -m examples.cdnow.pipeline DIRECTORY`.

All that has ended goes into the archive, the audit judges it there, and the report says how it
went. One session of Spark does the three; the runner reads what came of it from the run's files.
"""

from __future__ import annotations

import datetime as dt
import sys
from pathlib import Path

from examples.cdnow.lifeline import hold_lifeline
from examples.cdnow.shop import REPOSITORY, Pipeline, RunDirectory
from examples.cdnow.spark_app import SETTINGS
from onceq.spark import build_session
from onceq.spark.pipelines import archive, audit, audit_page, report


def main() -> None:
    hold_lifeline()
    directory = RunDirectory(Path(sys.argv[1]))
    url = directory.read_setup().url
    spark = build_session("cdnow pipeline", settings=SETTINGS)
    archived = archive(directory.archive, url, repository=REPOSITORY, spark=spark)
    audited = audit(url, repository=REPOSITORY, spark=spark)
    page = audit_page(audited, f"repository {REPOSITORY}", dt.datetime.now(dt.UTC))
    directory.audit.write_text(page, encoding="utf-8")
    reported = report(directory.reports, url, repository=REPOSITORY, spark=spark)
    directory.write_pipeline(
        Pipeline(
            archived=archived.rows["history"],
            files=archived.files,
            violations=audited.violations,
            audit=str(directory.audit),
            report=reported.page,
        )
    )
    spark.stop()


if __name__ == "__main__":
    main()
