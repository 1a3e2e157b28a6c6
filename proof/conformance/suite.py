"""What every driver must do: behaviours, written once, run on each.

For tests of drivers: give each of `BEHAVIOURS` an empty `Repository` of the driver's. A behaviour
raises NotConformant, or whatever the driver wrongly raised. Behaviours know only Ops and Programs,
no driver, and wait only by moving the repository's time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from proof.conformance import (
    charge_behaviours,
    client_behaviours,
    history_behaviours,
    processing_behaviours,
    server_behaviours,
    window_behaviours,
)
from proof.conformance.ground import Connection, NotConformant, Repository

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["BEHAVIOURS", "Connection", "NotConformant", "Repository"]

BEHAVIOURS: tuple[Callable[[Repository], None], ...] = (
    client_behaviours.queues_are_declared_once,
    client_behaviours.what_is_not_there_is_refused,
    client_behaviours.a_queue_that_holds_elements_is_not_destroyed,
    client_behaviours.a_stopped_queue_refuses,
    client_behaviours.elements_come_by_priority_and_time,
    client_behaviours.an_element_is_dequeued_by_its_eid,
    client_behaviours.operations_are_tagged,
    client_behaviours.a_request_gets_its_reply,
    client_behaviours.a_rid_is_one_request,
    client_behaviours.a_new_life_fences_the_former,
    client_behaviours.a_disconnect_leaves_a_tombstone,
    client_behaviours.many_requests_are_outstanding,
    client_behaviours.recovery_places_the_last_request,
    processing_behaviours.a_reply_is_printed_once,
    processing_behaviours.an_end_user_comes_back,
    processing_behaviours.a_reply_is_received_in_a_transaction,
    processing_behaviours.a_reply_that_keeps_aborting_is_held,
    client_behaviours.a_client_has_a_transaction_of_its_own,
    window_behaviours.the_last_replies_are_kept,
    window_behaviours.fewer_are_kept_from_the_next_life_on,
    window_behaviours.a_late_reply_is_found_behind_those_handed_out,
    window_behaviours.threads_have_tags_of_their_own,
    window_behaviours.a_client_that_is_forgotten_leaves_a_tombstone,
    window_behaviours.a_registrant_is_forgotten_with_its_registrations,
    window_behaviours.a_request_is_found_where_it_is,
    window_behaviours.a_late_request_is_alerted_once,
    window_behaviours.a_one_way_send_is_a_send,
    server_behaviours.the_last_abort_fails_an_element,
    charge_behaviours.charges_follow_the_evidence,
    charge_behaviours.a_retry_says_when_and_its_queue_how_often,
    charge_behaviours.a_retry_limit_may_be_none_at_all,
    charge_behaviours.faults_count_where_others_are_done,
    server_behaviours.fresh_returned_and_suspects_take_turns,
    server_behaviours.a_kill_decides,
    server_behaviours.a_revoked_claim_never_finishes,
    server_behaviours.only_what_was_started_is_charged,
    server_behaviours.what_was_started_waits_for_a_verdict,
    server_behaviours.a_verdict_waits_for_the_sessions,
    server_behaviours.a_broken_connection_is_not_a_death,
    server_behaviours.effects_commit_with_their_request,
    server_behaviours.requests_of_a_batch_fail_alone,
    server_behaviours.a_kill_costs_a_batch_only_its_request,
    server_behaviours.a_death_in_a_batch_charges_what_ran,
    server_behaviours.a_caller_takes_an_element,
    history_behaviours.aborts_are_recorded,
    history_behaviours.old_requests_are_found,
)
"""Every behaviour; each is given an empty repository of its own."""
