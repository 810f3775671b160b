// How often the simulator met each case, so that none goes untested.
#pragma once

#include "harness.h"

#include <inttypes.h>

static struct {
    uint64_t requests, refused, steps, preemptions, reserved, hits, deferred, evicted, out_of_order,
        stopped_ahead;
    uint64_t cancel_new, cancel_preempted, cancel_running, cancel_in_flight, cancel_again, failed,
        prompt_logprobs, deferred_victims;
    uint64_t passed_over, shared, full;  // S13; steps with as many plans in flight as may be, over two
    uint64_t fetches, adopted, given_up; // S18
    uint64_t late, late_drafts, late_prompts, started_over, overtook_late, all_late;  // S16
    uint64_t drafts, accepted, none_right, all_right, stopped_inside, trimmed, again; // S15
    uint64_t empty, finish_stop, finish_length;
    uint64_t spans, whole, span_hits, grid_hits, inside_whole, beyond_budget, whole_refused; // S17
    uint64_t given_back, window_hits, snapshots, restored, rolled_back, longer_than_pool;
} seen;

static void print_seen(void) {
    printf("  requests %" PRIu64 ", refused %" PRIu64 ", steps %" PRIu64 ", preemptions %" PRIu64
           " (reserved starts %" PRIu64 "), hits %" PRIu64 ", evicted %" PRIu64 ", deferred %" PRIu64
           " (overtaken %" PRIu64 ")\n",
           seen.requests, seen.refused, seen.steps, seen.preemptions, seen.reserved, seen.hits, seen.evicted,
           seen.deferred, seen.out_of_order);
    printf("  cancels: new %" PRIu64 ", preempted %" PRIu64 ", running %" PRIu64 ", in flight %" PRIu64
           ", again %" PRIu64 "; failed %" PRIu64 ", prompt log-probabilities %" PRIu64
           ", stopped ahead %" PRIu64 ", waited %" PRIu64 "\n",
           seen.cancel_new, seen.cancel_preempted, seen.cancel_running, seen.cancel_in_flight,
           seen.cancel_again, seen.failed, seen.prompt_logprobs, seen.stopped_ahead, seen.deferred_victims);
    printf("  passed over %" PRIu64 ", prompts shared out %" PRIu64 ", more than two plans in flight %" PRIu64
           "\n",
           seen.passed_over, seen.shared, seen.full);
    printf("  windows gave blocks back %" PRIu64 " times, hits behind them %" PRIu64
           ", longer than the pool %" PRIu64 "; snapshots %" PRIu64 ", restored %" PRIu64 "\n",
           seen.given_back, seen.window_hits, seen.longer_than_pool, seen.snapshots, seen.restored);
    printf("  drafts %" PRIu64 ", right %" PRIu64 ", items without a right one %" PRIu64
           ", all right %" PRIu64 ", stopped inside %" PRIu64 ", trimmed %" PRIu64 ", behind others %" PRIu64
           "\n",
           seen.drafts, seen.accepted, seen.none_right, seen.all_right, seen.stopped_inside, seen.trimmed,
           seen.again);
    printf("  late masks %" PRIu64 ", of drafts %" PRIu64 ", of prompts %" PRIu64 ", started over %" PRIu64
           ", overtaken %" PRIu64 ", all late %" PRIu64 "\n",
           seen.late, seen.late_drafts, seen.late_prompts, seen.started_over, seen.overtook_late,
           seen.all_late);
    printf("  fetches %" PRIu64 ", pages that came %" PRIu64 ", given up %" PRIu64 "\n", seen.fetches,
           seen.adopted, seen.given_up);
    printf("  spans %" PRIu64 ", whole %" PRIu64 ", in hits %" PRIu64 ", with grids %" PRIu64
           ", hits inside whole ones %" PRIu64 ", longer than the budget %" PRIu64 ", refused %" PRIu64 "\n",
           seen.spans, seen.whole, seen.span_hits, seen.grid_hits, seen.inside_whole, seen.beyond_budget,
           seen.whole_refused);
    printf("  empty outputs %" PRIu64 ", stop %" PRIu64 ", length %" PRIu64 "\n", seen.empty,
           seen.finish_stop, seen.finish_length);
}

// Of `want` requests: every case came up.
static void check_seen(uint64_t want) {
    assert_true(seen.preemptions > 0 && seen.reserved > 0 && seen.hits > 0 && seen.deferred > 0 &&
                seen.evicted > 0);
    assert_true(seen.out_of_order > 0 && seen.refused > 0 && seen.deferred_victims > 0 &&
                seen.stopped_ahead > 0);
    assert_true(seen.cancel_new > 0 && seen.cancel_preempted > 0 && seen.cancel_running > 0);
    assert_true(seen.cancel_in_flight > 0 && seen.cancel_again > 0 && seen.failed > 0 &&
                seen.prompt_logprobs > 0);
    assert_true(seen.passed_over > 0 && seen.full > 0 && (seen.shared > 0 || want < 100000));
    assert_true(seen.drafts > seen.accepted && seen.accepted > 0 && seen.none_right > 0 &&
                seen.all_right > 0 && seen.again > 0);
    assert_true(seen.late > 0 && seen.late_drafts > 0 && seen.late_prompts > 0 && seen.started_over > 0 &&
                seen.overtook_late > 0 && seen.all_late > 0);
    assert_true(seen.fetches > seen.given_up && seen.given_up > 0 && seen.adopted > 0);
    assert_true(seen.spans > seen.whole && seen.whole > 0 && seen.span_hits > seen.grid_hits &&
                seen.grid_hits > 0 && seen.inside_whole > 0 && seen.beyond_budget > 0 &&
                seen.whole_refused > 0);
    assert_true(seen.stopped_inside > 0 && seen.trimmed > 0 && seen.empty > 0);
    assert_true(seen.finish_stop > 0 && seen.finish_length > 0);
    assert_true(seen.given_back > 0 && seen.window_hits > 0 && seen.longer_than_pool > 0);
    assert_true(seen.snapshots > 0 && seen.restored > 0 && seen.rolled_back > 0);
}
