// The queues of the scheduler, in the one order of S1.
#include "scheduler_state.h"

// S1: one total order for both queues.
bool sched_before(const struct scheduler *s, const struct request *a, const struct request *b) {
    if (s->config.policy == SCHED_PRIORITY && a->priority != b->priority)
        return a->priority < b->priority;
    return a->arrival < b->arrival;
}

void sched_list_insert(const struct scheduler *s, struct request_list *list, struct request *r) {
    struct request *prev = list->tail;
    while (prev && sched_before(s, r, prev))
        prev = prev->prev;
    r->prev = prev;
    r->next = prev ? prev->next : list->head;
    *(r->prev ? &r->prev->next : &list->head) = r;
    *(r->next ? &r->next->prev : &list->tail) = r;
    list->len++;
}

void sched_list_append(struct request_list *list, struct request *r) {
    r->prev = list->tail;
    r->next = NULL;
    *(r->prev ? &r->prev->next : &list->head) = r;
    list->tail = r;
    list->len++;
}

void sched_list_remove(struct request_list *list, struct request *r) {
    *(r->prev ? &r->prev->next : &list->head) = r->next;
    *(r->next ? &r->next->prev : &list->tail) = r->prev;
    r->prev = r->next = NULL;
    list->len--;
}

void sched_enter_waiting(struct scheduler *s, struct request *r) {
    r->state = REQUEST_WAITING;
    r->asked = false;
    s->waiting_tokens += r->num_tokens;
    sched_list_insert(s, &s->waiting, r);
}

void sched_leave_waiting(struct scheduler *s, struct request *r) {
    s->waiting_tokens -= r->num_tokens;
    sched_list_remove(&s->waiting, r);
}
