// Runs recorded with --record, played back into the scheduler of today: every plan must come out again. A
// change of policy changes plans; then the records are made anew, on purpose (tests/replay/README.md).
#include "service.h"

#include "harness.h"

#include <dirent.h>
#include <unistd.h>

#ifndef QUIRE_SOURCE_DIR
#define QUIRE_SOURCE_DIR "."
#endif

TEST(test_records) {
    const char *folder = QUIRE_SOURCE_DIR "/tests/replay";
    DIR *dir = opendir(folder);
    int num_records = 0;
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));) {
        size_t len = strlen(e->d_name);
        if (len < 5 || strcmp(e->d_name + len - 4, ".rec") != 0)
            continue;
        char path[4096];
        struct err err = {0};
        uint64_t plans = 0;
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        if (service_replay(path, &plans, &err) != STATUS_OK)
            fail_msg("%s: %s", e->d_name, err.msg);
        printf("  %s: %llu plans\n", e->d_name, (unsigned long long)plans);
        assert_true(plans > 20);
        num_records++;
    }
    closedir(dir);
    assert_true(num_records >= 1);
}

static const char one_plan[] = "quire-record 1\n"
                               "config 0 4 16 16 64 8 4 1 1 2\n"
                               "add 1 0 4 0 0 1 2 0 5 7 8 9 10 11\n"
                               "plan 1 1 1 0 5 4 1\n"
                               "outcome 1 1 12 0\n"
                               "remove 1 3\n";
// Two plans in flight: request 1 is planned again, request 2 has penalties and is not.
static const char two_plans[] = "quire-record 1\n"
                                "config 0 4 16 16 64 8 4 1 1 2 2 1\n"
                                "add 1 0 4 0 0 1 2 0 5 7 8 9 10 11\n"
                                "add 2 0 4 0 0 0 0 2 7 9 1\n"
                                "plan 1 2 1 0 5 4 1 2 0 2 1 1\n"
                                "plan 2 1 1 5 1 0 1\n"
                                "outcome 1 1 12 0 1 13 0\n"
                                "remove 1 3\n"
                                "plan 3 1 2 2 1 0 1\n"
                                "outcome 2 1 12 0\n"
                                "plan 0 0\n";
// The pace changes: a prompt beside a decode gets 3 tokens, then 1.
static const char paced[] = "quire-record 1\n"
                            "config 0 4 16 16 64 8 4 1 1 2\n"
                            "add 1 0 4 0 0 0 0 2 7 9\n"
                            "plan 1 1 1 0 2 1 1\n"
                            "outcome 1 1 12 0\n"
                            "add 2 0 4 0 0 0 0 6 5 7 8 9 10 11\n"
                            "chunk 3\n"
                            "plan 2 2 1 2 1 0 1 2 0 3 3 0\n"
                            "outcome 2 1 12 0 0 0\n"
                            "chunk 1\n"
                            "plan 3 2 1 3 1 0 1 2 3 1 1 0\n";

// Request 1 has drafts for its second plan: of two one is right. Request 2 goes on beside it.
static const char drafting[] = "quire-record 1\n"
                               "config 0 4 16 16 64 8 4 1 1 2 2 1\n"
                               "add 1 0 9 0 0 0 0 2 7 9 1\n"
                               "add 2 0 9 0 0 0 0 2 8 9\n"
                               "plan 1 2 1 0 2 1 1 2 0 2 1 1\n"
                               "plan 2 1 2 2 1 0 1\n"
                               "outcome 1 1 12 0 1 13 0\n"
                               "draft 1 2 21 22\n"
                               "plan 3 2 2 3 1 0 1 1 2 3 0 3\n"
                               "outcome 2 1 14 0\n"
                               "plan 4 1 2 4 1 0 1\n"
                               "outcome 3 1 15 0 2 21 30 0\n"
                               "plan 5 2 1 4 1 0 1 2 5 1 0 1\n";

static void damage(const char *text, size_t size) {
    char path[] = "/tmp/quire-replay-XXXXXX";
    int fd = mkstemp(path), ok = 0;
    assert_true(fd >= 0);
    fclose(fdopen(fd, "w"));
    for (size_t i = 0; i < size; i++)
        for (int change = 0; change < 8; change++) {
            char copy[sizeof drafting + sizeof two_plans];
            struct err err = {0};
            uint64_t plans;
            memcpy(copy, text, size);
            copy[i] = (char)(change == 0 ? text[i] : "\n 0-9zq"[change - 1]);
            FILE *f = fopen(path, "w");
            fwrite(copy, 1, change == 0 ? i : size - 1, f);
            fclose(f);
            ok += service_replay(path, &plans, &err) == STATUS_OK;
        }
    remove(path);
    assert_true(ok > 0);
}

// A record cut anywhere, or with any byte changed, is refused or replays what is left; it never crashes.
TEST(test_damaged_records) {
    damage(one_plan, sizeof one_plan);
    damage(two_plans, sizeof two_plans);
    damage(paced, sizeof paced);
    damage(drafting, sizeof drafting);
}

static void replays(const char *text, size_t size, uint64_t expected) {
    char path[] = "/tmp/quire-replay-XXXXXX";
    int fd = mkstemp(path);
    struct err err = {0};
    uint64_t plans = 0;
    assert_int_equal(write(fd, text, size), size);
    close(fd);
    if (service_replay(path, &plans, &err) != STATUS_OK)
        fail_msg("%s", err.msg);
    assert_int_equal(plans, expected);
    remove(path);
}

// More tokens than were asked for: what they make has no room where events go.
TEST(test_too_many_tokens) {
    static const char *const outcomes[] = {"1 10 3 3 3 3 3 3 3 3 3 3 0\n", "1 2 3 3 0\n", "1 1 3 0\n"};
    for (int i = 0; i < 3; i++) {
        char text[400], path[] = "/tmp/quire-replay-XXXXXX";
        struct err err = {0};
        uint64_t plans;
        int fd = mkstemp(path);
        // The last is a plan of half a prompt, which samples nothing.
        int n = snprintf(text, sizeof text,
                         "quire-record 1\nconfig 0 1 %d 16 64 8 4 1 1 2\n"
                         "add 1 0 20 0 0 0 0 2 7 9\nplan 1 1 1 0 %d 1 %d\noutcome %s",
                         i == 2 ? 1 : 16, i == 2 ? 1 : 2, i < 2, outcomes[i]);
        assert_int_equal(write(fd, text, (size_t)n), n);
        close(fd);
        assert_int_equal(service_replay(path, &plans, &err), STATUS_FORMAT);
        assert_non_null(strstr(err.msg, "line 5"));
        remove(path);
    }
}

TEST(test_plans_in_flight) { replays(two_plans, sizeof two_plans - 1, 3); }

TEST(test_drafts) { replays(drafting, sizeof drafting - 1, 5); }

TEST(test_pace) { replays(paced, sizeof paced - 1, 3); }

int main(void) { return run_all_tests(NULL, NULL); }
