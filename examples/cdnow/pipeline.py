"""What comes after the work: `python -m examples.cdnow.pipeline DIRECTORY`.

All that has ended goes into the archive. The audit judges it there, by what was booked and by what
the clients saw, and the report says how it went; both show the kills. One session of Spark does the
three; the runner reads what came of it from the run's files.
"""

from __future__ import annotations

import datetime as dt
import sys
from pathlib import Path

from examples.cdnow.shop import REPOSITORY, Pipeline, RunDirectory
from examples.cdnow.spark_app import SETTINGS
from examples.running.lifeline import hold_lifeline
from onceq.spark import build_session
from onceq.spark.pipelines import Incident, Known, archive, audit, audit_page, report


def main() -> None:
    hold_lifeline()
    directory = RunDirectory(Path(sys.argv[1]))
    url = directory.read_setup().url
    spark = build_session("cdnow pipeline", settings=SETTINGS)
    archived = archive(directory.archive, url, repository=REPOSITORY, spark=spark)
    known = Known(events=directory.events, effects="booked", effects_each=1)
    audited = audit(url, repository=REPOSITORY, known=known, spark=spark)
    kills = [
        Incident(what=one.what, at=one.at, over_at=one.over_at) for one in directory.read_outages()
    ]
    now = dt.datetime.now(dt.UTC)
    page = audit_page(audited, f"repository {REPOSITORY}", now, incidents=kills)
    directory.audit.write_text(page, encoding="utf-8")
    reported = report(directory.reports, url, repository=REPOSITORY, incidents=kills, spark=spark)
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
