"""Functions that clients call by name: how many keys and arguments each takes, what it runs.

The table is fixed.
"""

from typing import Final

from jobyard.protocols.glidemq.errors import Wrong
from jobyard.protocols.glidemq.function_call import Function
from jobyard.protocols.glidemq.functions import add, flow, manage, ordering, values, work

FUNCTION_PREFIX: Final = b"glidemq_"
# A flow has keys and arguments for each of its jobs.
ANY_COUNT: Final = 1 << 30

FUNCTIONS: Final[dict[bytes, Function]] = {
    b"glidemq_version": Function(add.version, (0, 1), (0, 0)),
    b"glidemq_addJob": Function(add.add_job, (4, 5), (17, 22)),
    b"glidemq_dedup": Function(add.dedup, (5, 6), (20, 23)),
    b"glidemq_addFlow": Function(add.add_flow, (4, ANY_COUNT), (9, ANY_COUNT)),
    b"glidemq_pause": Function(add.pause, (2, 2), (0, 0)),
    b"glidemq_resume": Function(add.resume, (2, 2), (0, 0)),
    b"glidemq_promote": Function(work.promote, (3, 3), (1, 1)),
    b"glidemq_nextDue": Function(work.next_due, (2, 2), (0, 0)),
    b"glidemq_popLists": Function(work.pop_lists, (2, 3), (1, 1)),
    b"glidemq_rpopAndReserve": Function(work.rpop_and_reserve, (4, 4), (1, 2)),
    b"glidemq_checkConcurrency": Function(work.check_concurrency, (3, 3), (1, 1)),
    b"glidemq_moveToActive": Function(work.move_to_active, (1, 2), (1, 6)),
    b"glidemq_completeAndFetchNext": Function(work.complete_and_fetch_next, (5, 9), (9, 19)),
    b"glidemq_complete": Function(work.complete, (4, 9), (8, 13)),
    b"glidemq_fail": Function(work.fail, (5, 6), (10, 14)),
    b"glidemq_deferActive": Function(work.defer_active, (2, 3), (3, 7)),
    b"glidemq_reclaimStalled": Function(work.reclaim_stalled, (2, 2), (6, 11)),
    b"glidemq_reclaimStalledListJobs": Function(work.reclaim_stalled_list_jobs, (2, 2), (4, 6)),
    b"glidemq_healListActive": Function(work.heal_list_active, (1, 1), (0, 2)),
    b"glidemq_getActiveListJobIds": Function(work.get_active_list_job_ids, (1, 1), (2, 2)),
    b"glidemq_tryLock": Function(values.try_lock, (1, 1), (2, 2)),
    b"glidemq_unlock": Function(values.unlock, (1, 1), (1, 1)),
    b"glidemq_renewLock": Function(values.renew_lock, (1, 1), (2, 2)),
    b"glidemq_rateLimit": Function(values.rate_limit, (2, 2), (3, 3)),
    b"glidemq_promoteRateLimited": Function(ordering.promote_rate_limited, (2, 2), (1, 1)),
    b"glidemq_removeJob": Function(manage.remove_job, (7, 9), (1, 1)),
    b"glidemq_clean": Function(manage.clean, (3, 3), (2, 2)),
    b"glidemq_drain": Function(manage.drain, (4, 6), (2, 2)),
    b"glidemq_retryJobs": Function(manage.retry_jobs, (4, 4), (2, 2)),
    b"glidemq_revoke": Function(manage.revoke, (5, 7), (2, 3)),
    b"glidemq_changePriority": Function(manage.change_priority, (4, 4), (2, 3)),
    b"glidemq_changeDelay": Function(manage.change_delay, (4, 4), (3, 4)),
    b"glidemq_promoteJob": Function(manage.promote_job, (4, 4), (1, 1)),
    b"glidemq_searchByName": Function(manage.search_by_name, (1, 1), (4, 4)),
    b"glidemq_moveActiveToDelayed": Function(work.move_active_to_delayed, (4, 4), (5, 7)),
    b"glidemq_moveToWaitingChildren": Function(flow.move_to_waiting_children, (3, 3), (4, 5)),
    b"glidemq_completeChild": Function(flow.complete_child, (4, 4), (2, 2)),
    b"glidemq_registerParent": Function(flow.register_parent, (6, 6), (4, 4)),
    b"glidemq_rateLimitGroup": Function(ordering.rate_limit_group, (2, 2), (5, 9)),
    b"glidemq_rateLimitGroupExternal": Function(ordering.rate_limit_group_external, (2, 2), (3, 4)),
    b"glidemq_suspend": Function(flow.suspend, (4, 4), (6, 7)),
    b"glidemq_signal": Function(flow.signal, (5, 5), (4, 4)),
    b"glidemq_sweepSuspended": Function(flow.sweep_suspended, (4, 4), (2, 2)),
    b"glidemq_checkBudget": Function(values.check_budget, (1, 1), (0, 0)),
    b"glidemq_recordUsageAndCheckBudget": Function(
        values.record_usage_and_check_budget, (1, 1), (6, 6)
    ),
    # Functions of clients after version 93 that have no older equivalent.
    b"glidemq_popListsReserve": Function(work.pop_lists, (2, 3), (1, 1)),
    b"glidemq_updateJobFields": Function(manage.update_job_fields, (2, 2), (3, ANY_COUNT)),
    b"glidemq_retryJob": Function(manage.retry_job, (3, 3), (2, 2)),
    b"glidemq_trimBroadcast": Function(manage.trim_broadcast, (4, 4), (2, 2)),
    b"glidemq_casSchedulerEntry": Function(values.cas_scheduler_entry, (1, 1), (3, 3)),
    b"glidemq_updateFlowBudget": Function(values.update_flow_budget, (1, 1), (0, ANY_COUNT)),
}


def find_function(name: bytes) -> Function:
    """Return a function by its name."""
    function = FUNCTIONS.get(name)
    if function is None:
        raise Wrong("ERR Function not found")
    return function
