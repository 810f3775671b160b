// cgroup_each() and cpus_quota() in a folder that stands for "/".
#include "harness.h"

#include "cgroup.h"
#include "cpus.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[] = "/tmp/quire-cgroup-XXXXXX";

// A file of the tree, with the folders that it needs
static void put(const char *name, const char *text) {
    char path[200];
    int n = snprintf(path, sizeof path, "%s/%s", root, name);
    assert_true(n > 0 && n < (int)sizeof path);
    for (char *p = path + sizeof root; (p = strchr(p, '/')); *p++ = '/') {
        *p = 0;
        mkdir(path, 0755);
    }
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fputs(text, f) < 0 || fclose(f), 0);
}

static int setup(void **state) {
    (void)state;
    memcpy(root + sizeof root - 7, "XXXXXX", 6);
    return mkdtemp(root) ? 0 : -1;
}

static int teardown(void **state) {
    (void)state;
    char command[100];
    snprintf(command, sizeof command, "rm -rf %s", root);
    return system(command);
}

static void collect(void *ctx, const char *folder) {
    char *all = ctx;
    strcat(strcat(all, folder + strlen(root)), " ");
}

static void test_folders(void **state) {
    (void)state;
    char all[1000] = "";
    put("proc/self/cgroup", "12:memory:/m\n3:cpuset,cpu,cpuacct:/a/b\n2:cpuset:/c\n0::/d/e\n");
    cgroup_each(root, "cpu", collect, all);
    assert_string_equal(all, "/sys/fs/cgroup /sys/fs/cgroup/cpu "
                             "/sys/fs/cgroup/cpu/a/b /sys/fs/cgroup/cpu/a /sys/fs/cgroup/cpu "
                             "/sys/fs/cgroup/d/e /sys/fs/cgroup/d /sys/fs/cgroup ");
}

static void test_no_quota(void **state) {
    (void)state;
    assert_int_equal(cpus_quota(root), INT_MAX); // no files at all
    put("proc/self/cgroup", "1:cpu:/\n0::/a\n");
    put("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
    put("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    put("sys/fs/cgroup/a/cpu.max", "max 100000\n");
    assert_int_equal(cpus_quota(root), INT_MAX);
    put("sys/fs/cgroup/a/cpu.max", "100000 0\n");
    assert_int_equal(cpus_quota(root), INT_MAX);
    put("sys/fs/cgroup/a/cpu.max", "");
    assert_int_equal(cpus_quota(root), INT_MAX);
}

static void test_version_2(void **state) {
    (void)state;
    put("proc/self/cgroup", "0::/a/b\n");
    put("sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
    put("sys/fs/cgroup/a/cpu.max", "790000 100000\n");
    assert_int_equal(cpus_quota(root), 7); // of the group around ours
    put("sys/fs/cgroup/a/b/cpu.max", "150000 50000\n");
    assert_int_equal(cpus_quota(root), 3);
    put("sys/fs/cgroup/cpu.max", "50000 100000\n"); // as a container sees its own
    assert_int_equal(cpus_quota(root), 1);
}

static void test_version_1(void **state) {
    (void)state;
    put("proc/self/cgroup", "5:cpuset:/other\n4:cpu,cpuacct:/x\n");
    put("sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "400000\n");
    assert_int_equal(cpus_quota(root), INT_MAX); // of which time?
    put("sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000\n");
    assert_int_equal(cpus_quota(root), 4);
    put("sys/fs/cgroup/cpu/other/cpu.cfs_quota_us", "100000\n"); // of another controller's group
    put("sys/fs/cgroup/cpu/other/cpu.cfs_period_us", "100000\n");
    assert_int_equal(cpus_quota(root), 4);
}

static void test_here(void **state) {
    (void)state;
    int n = cpus_here();
    assert_true(n >= 1 && n <= cpus_quota("") && n <= sysconf(_SC_NPROCESSORS_CONF));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_folders, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_quota, setup, teardown),
        cmocka_unit_test_setup_teardown(test_version_2, setup, teardown),
        cmocka_unit_test_setup_teardown(test_version_1, setup, teardown),
        cmocka_unit_test(test_here),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
