/* SPDX-License-Identifier: Apache-2.0 */
/* Rank tables: the four spellings, every rule with its message, make, merge, digest, size.
 *
 * bad_cases has a row for each rule: a good table, one replacement that breaks it, and the words
 * that the error must have. Equal tables of different spellings have equal digests.
 * hccn.conf and rank tables of 65,536 ranks are read, too. */
#include "growth.h"

#include "trireme/dist.h"

#include "comm/cluster/ranktable.h"

#include <unistd.h>

static const char lab[] =
    "{\"board_id\":\"0x0000\",\"chip_info\":\"910\",\"deploy_mode\":\"lab\",\"group_count\":\"1\","
    "\"group_list\":[{\"device_num\":\"2\",\"server_num\":\"1\",\"group_name\":\"\","
    "\"instance_count\":\"2\",\"instance_list\":["
    "{\"devices\":[{\"device_id\":\"0\",\"device_ip\":\"192.168.100.101\"}],\"rank_id\":\"0\","
    "\"server_id\":\"10.0.0.1\"},"
    "{\"devices\":[{\"device_id\":\"1\",\"device_ip\":\"192.168.101.101\"}],\"rank_id\":\"1\","
    "\"server_id\":\"10.0.0.1\"}]}],"
    "\"para_plane_nic_location\":\"device\",\"para_plane_nic_name\":[\"eth0\",\"eth1\"],"
    "\"para_plane_nic_num\":\"2\",\"status\":\"completed\"}";

static const char pods[] =
    "{\"status\":\"completed\",\"group_count\":\"1\",\"group_list\":[{\"group_name\":\"g\","
    "\"instance_count\":\"2\",\"device_count\":\"4\",\"instance_list\":["
    "{\"pod_name\":\"p0\",\"server_id\":\"10.0.0.1\",\"devices\":[{\"device_id\":\"0\","
    "\"device_ip\":\"10.1.0.1\"},{\"device_id\":\"1\",\"device_ip\":\"10.1.0.2\"}]},"
    "{\"pod_name\":\"p1\",\"server_id\":\"10.0.0.2\",\"devices\":[{\"device_id\":\"4\","
    "\"device_ip\":\"10.1.0.3\"},{\"device_id\":\"5\",\"device_ip\":\"10.1.0.4\"}]}]}]}";

static const char v1[] =
    "{\"version\":\"1.0\",\"server_count\":\"2\",\"server_list\":["
    "{\"server_id\":\"node1\",\"host_ip\":\"10.0.0.1\",\"host_nic_ip\":\"reserve\",\"device\":["
    "{\"device_id\":\"0\",\"device_ip\":\"10.1.0.1\",\"rank_id\":\"0\"},"
    "{\"device_id\":\"1\",\"device_ip\":\"10.1.0.2\",\"rank_id\":\"1\"}]},"
    "{\"server_id\":\"node2\",\"device\":["
    "{\"device_id\":\"0\",\"device_ip\":\"10.1.0.3\",\"rank_id\":\"2\"},"
    "{\"device_id\":\"3\",\"device_ip\":\"10.1.0.4\",\"rank_id\":\"3\"}]}],"
    "\"status\":\"completed\"}";

static const char v12[] =
    "{\"version\":\"1.2\",\"server_count\":\"1\",\"server_list\":[{\"server_id\":\"a\","
    "\"device\":[{\"device_id\":\"0\",\"rank_id\":\"0\",\"super_device_id\":\"7\"}]}],"
    "\"super_pod_list\":[{\"super_pod_id\":\"0\",\"server_list\":[{\"server_id\":\"a\"}]}],"
    "\"status\":\"completed\"}";

static const char v2[] =
    "{\"version\":\"2.0\",\"rank_count\":2,\"rank_list\":["
    "{\"rank_id\":0,\"local_id\":0,\"device_id\":0,\"level_list\":[{\"net_layer\":0,"
    "\"net_instance_id\":\"az0\",\"net_type\":\"TOPO_FILE_DESC\",\"net_attr\":\"\","
    "\"rank_addr_list\":[{\"addr_type\":\"IPV4\",\"addr\":\"10.0.0.1\",\"ports\":[\"1/0\"]}]},"
    "{\"net_layer\":1,\"net_instance_id\":\"all\",\"net_type\":\"CLOS\"}]},"
    "{\"rank_id\":\"1\",\"local_id\":1,\"device_id\":1,\"level_list\":[{\"net_layer\":0,"
    "\"net_instance_id\":\"az0\"}]}]}";

/* `base` with the first `from` replaced by `to`. */
static char *replace_first(const char *base, const char *from, const char *to) {
    const char *at = strstr(base, from);
    assert_non_null(at);
    char *out = malloc(strlen(base) + strlen(to) + 1);
    sprintf(out, "%.*s%s%s", (int)(at - base), base, to, at + strlen(from));
    return out;
}

static trm_rank_table *read_good(const char *text) {
    trm_error err;
    trm_rank_table *table = NULL;
    CHECK_OK(trmi_table_parse("t.json", text, strlen(text), &table, &err), err);
    return table;
}

static void every_spelling_is_read(void **state) {
    trm_rank_table *table = read_good(lab);
    assert_int_equal(table->form, TRM_RANK_TABLE_GROUPS);
    assert_int_equal(trm_rank_table_size(table), 2);
    trm_rank_entry entry = trm_rank_table_entry(table, 1);
    assert_int_equal(entry.device_id, 1);
    assert_string_equal(entry.server_id, "10.0.0.1");
    assert_string_equal(entry.device_ip, "192.168.101.101");
    trm_rank_table_destroy(table);

    table = read_good(pods);
    int32_t first = -1, count = -1;
    assert_int_equal(table->form, TRM_RANK_TABLE_TEMPLATE2);
    assert_true(trmi_table_pod(table, "p1", &first, &count));
    assert_int_equal(first, 2);
    assert_int_equal(count, 2);
    assert_false(trmi_table_pod(table, "p2", &first, &count));
    assert_int_equal(trm_rank_table_entry(table, 3).device_id, 5);
    trm_rank_table_destroy(table);

    table = read_good(v1);
    assert_int_equal(table->server_count, 2);
    assert_string_equal(trm_rank_table_entry(table, 0).host, "10.0.0.1");
    assert_string_equal(trm_rank_table_entry(table, 3).host, "node2");
    assert_int_equal(trm_rank_table_entry(table, 3).device_id, 3);
    assert_int_equal(trm_rank_table_entry(table, 4).rank, -1);
    assert_int_equal(table->warnings.count, 0);
    trm_rank_table_destroy(table);

    trm_rank_table_destroy(read_good(v12));
    /* one server needs no levels */
    char *bare = replace_first(v2, "\"level_list\":[{\"net_layer\":0,\"net_instance_id\":\"az0\"}]",
                               "\"level_list\":[]");
    char *all_bare = replace_first(bare,
                                   "[{\"net_layer\":0,\"net_instance_id\":\"az0\",\"net_type\":"
                                   "\"TOPO_FILE_DESC\",\"net_attr\":\"\",\"rank_addr_list\":[{"
                                   "\"addr_type\":\"IPV4\",\"addr\":\"10.0.0.1\",\"ports\":["
                                   "\"1/0\"]}]},{\"net_layer\":1,\"net_instance_id\":\"all\","
                                   "\"net_type\":\"CLOS\"}]",
                                   "[]");
    table = read_good(all_bare);
    assert_int_equal(trm_rank_table_size(table), 2);
    assert_int_equal(table->server_count, 1);
    trm_rank_table_destroy(table);
    free(bare);
    free(all_bare);
    table = read_good(v2);
    assert_int_equal(table->form, TRM_RANK_TABLE_V2);
    assert_string_equal(trm_rank_table_entry(table, 1).server_id, "az0");
    trm_rank_table_destroy(table);
}

/* A table that must be refused: `base` with `from` replaced by `to`, and a part of the message. */
typedef struct bad_case {
    const char *base, *from, *to, *message;
} bad_case;

static const bad_case bad_cases[] = {
    /* the document */
    {lab, "\"2\",\"server_num\"", "\"2\"\"server_num\"", "not JSON"},
    {lab, "\"instance_list\":[", "\"instance_list\":[...],\"x\":[", "guide's placeholder"},
    {lab, "\"status\"", "\"chip_info\":\"910\",\"status\"", "duplicate object key"},
    {lab, "\"group_list\"", "\"list\"", "neither version nor group_list"},
    {v1, "\"version\":\"1.0\",", "", "version is missing"},
    {v1, "\"1.0\"", "\"1.1\"", "\"1.0\", \"1.2\" or \"2.0\" expected, found \"1.1\""},
    {v1, "\"1.0\"", "1.0", "version: a string expected, found the number 1"},
    {lab, "completed", "done", "status: \"completed\" expected, found \"done\""},
    {v1, ",\"status\":\"completed\"", "", "status is missing"},
    /* lab: the head */
    {lab, "\"deploy_mode\":\"lab\"", "\"deploy_mode\":\"cloud\"", "deploy_mode: \"lab\" expected"},
    {lab, "\"device\",\"para", "\"nic\",\"para", "\"device\" or \"host\" expected"},
    {lab, "\"eth1\"", "\"\"", "para_plane_nic_name[1]: the name of a network interface"},
    {lab, "nic_num\":\"2\"", "nic_num\":\"8\"",
     "para_plane_nic_num says 8, but para_plane_nic_name has 2"},
    {lab, "group_count\":\"1\"", "group_count\":\"2\"", "group_count says 2, but group_list has 1"},
    {lab, "\"group_count\":\"1\",", "", "group_count is missing"},
    {lab, "\"group_count\":\"1\"", "\"group_count\":1",
     "group_count: numbers are strings in this form, found 1; write \"1\""},
    {lab, "\"group_list\":[{", "\"group_list\":[3,{", "group_count says 1, but group_list has 2"},
    {lab, "device_num\":\"2\"", "device_num\":\"8\"",
     "group_list[0].device_num says 8, but instance_list has 2"},
    {lab, "instance_count\":\"2\"", "instance_count\":\"3\"",
     "group_list[0].instance_count says 3, but instance_list has 2"},
    {lab, "server_num\":\"1\"", "server_num\":\"2\"",
     "group_list[0].server_num says 2, but the instances' server_id has 1"},
    {lab, "\"instance_list\":[", "\"instance_list\":\"\",\"x\":[",
     "instance_list: a list expected, found the string"},
    /* lab: instances */
    {lab, "\"instance_list\":[{", "\"instance_list\":[5,{",
     "instance_count says 2, but instance_list has 3"},
    {lab, ",\"rank_id\":\"1\"", "", "instance_list[1].rank_id is missing"},
    {lab, "\"rank_id\":\"1\"", "\"rank_id\":1", "rank_id: numbers are strings in this form"},
    {lab, "\"rank_id\":\"1\"", "\"rank_id\":\"x1\"", "rank_id: decimal digits expected"},
    {lab, "\"rank_id\":\"1\"", "\"rank_id\":\"-1\"", "decimal digits expected"},
    {lab, "\"rank_id\":\"1\"", "\"rank_id\":\"0\"",
     "instance_list[1].rank_id: 0 is taken by group_list[0].instance_list[0]"},
    {lab, "\"rank_id\":\"1\"", "\"rank_id\":\"5\"",
     "0 to 1 expected for 2 devices, found 5; rank 1 is missing"},
    {lab, "\"rank_id\":\"1\"", "\"rank_id\":\"999999\"", "0 to 65535 expected"},
    {lab, "\"server_id\":\"10.0.0.1\"", "\"server_id\":\"\"", "server_id is empty"},
    {lab, "\"server_id\":\"10.0.0.1\"", "\"server\":\"\"", "server_id is missing"},
    {lab, "\"device_id\":\"1\"", "\"device_id\":\"8\"", "device_id: 0 to 7 expected"},
    {lab, "\"device_id\":\"1\"", "\"device_id\":\"0\"",
     "device 0 of server \"10.0.0.1\" already has rank 0"},
    {lab, ",\"device_ip\":\"192.168.101.101\"", "", "device_ip is missing"},
    {lab, "192.168.101.101", "", "device_ip is empty; the NIC's address from /etc/hccn.conf"},
    {lab, "192.168.101.101", "192.168.101.300", "an IPv4 or IPv6 address expected"},
    {lab, "192.168.101.101", "fe80::1", "one family expected everywhere"},
    {lab, "192.168.101.101", "192.168.100.101", "each address once"},
    {lab, "192.168.101.101", "192.168.101.101,192.168.102.101",
     "has 2 addresses, group_list[0].instance_list[0] has 1"},
    {lab, "\"devices\":[{", "\"devices\":[{},{", "exactly one device per instance"},
    {lab, "\"devices\":[{\"device_id\":\"0\",\"device_ip\":\"192.168.100.101\"}]", "\"devices\":[]",
     "exactly one device per instance expected, found 0"},
    /* template 2 */
    {pods, "\"p1\"", "\"p0\"", "\"p0\" is already instance_list[0]"},
    {pods, "\"p1\"", "\"\"", "pod_name is empty"},
    {pods, "\"device_count\":\"4\"", "\"device_count\":\"3\"",
     "device_count says 3, but all devices lists together has 4"},
    {pods, "\"pod_name\":\"p1\",", "", "instance_list[1].pod_name is missing"},
    /* 1.0 and 1.2 */
    {v1, "server_count\":\"2\"", "server_count\":\"3\"",
     "server_count says 3, but server_list has 2"},
    {v1, "\"node2\"", "\"node1\"", "server_list[1].server_id: \"node1\" is already server_list[0]"},
    {v1, "\"node2\"",
     "\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"",
     "75 characters, at most 64 expected"},
    {v1, "\"host_ip\":\"10.0.0.1\"", "\"host_ip\":\"ten\"", "host_ip: an IPv4 or IPv6 address"},
    {v1,
     "\"device\":[{\"device_id\":\"0\",\"device_ip\":\"10.1.0.3\",\"rank_id\":\"2\"},"
     "{\"device_id\":\"3\",\"device_ip\":\"10.1.0.4\",\"rank_id\":\"3\"}]",
     "\"device\":[]", "server_list[1].device is empty"},
    {v1, "\"rank_id\":\"1\"", "\"rank_id\":\"9\"", "found 9; rank 1 is missing"},
    {v1, "\"device\":[", "\"devices\":[", "server_list[0].device is missing"},
    {v1, "\"device_id\":\"3\"", "\"device_id\":\"3\",\"device_port\":\"70000\"",
     "device_port: 1 to 65535 expected"},
    {v1, "\"device_id\":\"3\"", "\"device_id\":\"3\",\"host_port\":\"0\"",
     "host_port: 1 to 65535 expected"},
    {v1, "\"device_id\":\"3\"", "\"device_id\":\"3\",\"backup_device_ip\":\"x\"",
     "backup_device_ip: an IPv4 or IPv6 address expected"},
    {v1, "\"device_id\":\"3\"", "\"device_id\":true", "a number in quotes expected, found true"},
    {v1, "\"rank_id\":\"1\"", "\"rank_id\":\"3\"", "3 is taken by"},
    {v12, "[{\"server_id\":\"a\"}]", "[{\"server_id\":\"b\"}]", "\"b\" is not in server_list"},
    {v12, "[{\"server_id\":\"a\"}]", "[]", "server \"a\" is in none of its super pods"},
    {v12, "[{\"server_id\":\"a\"}]", "[{\"server_id\":\"a\"},{\"server_id\":\"a\"}]",
     "\"a\" is already in super_pod_list[0]"},
    /* 2.0 */
    {v2, "\"rank_count\":2", "\"rank_count\":3", "rank_count says 3, but rank_list has 2"},
    {v2, "\"rank_count\":2", "\"rank_count\":70000", "rank_count: 1 to 65536 expected"},
    {v2, "\"net_layer\":1", "\"net_layer\":0", "layers ascend, found 0 after 0"},
    {v2, "\"net_layer\":1", "\"net_layer\":8", "net_layer: 0 to 7 expected"},
    {v2, "CLOS", "MESH", "TOPO_FILE_DESC or CLOS expected"},
    {v2, "IPV4", "IPV9", "EID, IPV4 or IPV6 expected"},
    {v2, "\"addr\":\"10.0.0.1\"", "\"addr\":\"nine\"", "an IPV4 address expected"},
    {v2, "\"level_list\":[{\"net_layer\":0,\"net_instance_id\":\"az0\"}]", "\"level_list\":[]",
     "level_list is empty for 1 of 2 ranks; give all ranks levels"},
    {v2, "\"level_list\":[{\"net_layer\":0,\"net_instance_id\":\"az0\"}]",
     "\"level_list\":[{\"net_layer\":2,\"net_instance_id\":\"az0\"}]", "has no net_layer 0"},
    {v2, "\"rank_id\":\"1\"", "\"rank_id\":0", "rank_list[1].rank_id: 0 is taken by rank_list[0]"},
};

static void every_rule_has_its_message(void **state) {
    trm_error err;
    for (size_t c = 0; c < sizeof bad_cases / sizeof bad_cases[0]; c++) {
        char *text = replace_first(bad_cases[c].base, bad_cases[c].from, bad_cases[c].to);
        trm_rank_table *table = NULL;
        CHECK_FAILS(trmi_table_parse("t.json", text, strlen(text), &table, &err), TRM_INVALID, err,
                    bad_cases[c].message);
        assert_non_null(strstr(err.message, "t.json: "));
        assert_true(strlen(err.message) < sizeof err.message - 1);
        assert_null(table);
        free(text);
    }
    print_message("%zu bad rank tables\n", sizeof bad_cases / sizeof bad_cases[0]);
}

static void interleaved_servers_are_refused(void **state) {
    trm_error err;
    trm_rank_table *table;
    char *one = replace_first(v1, "\"rank_id\":\"1\"", "\"rank_id\":\"9\"");
    char *two = replace_first(one, "\"rank_id\":\"3\"", "\"rank_id\":\"1\"");
    char *three = replace_first(two, "\"rank_id\":\"9\"", "\"rank_id\":\"3\"");
    CHECK_FAILS(trmi_table_parse("t", three, strlen(three), &table, &err), TRM_INVALID, err,
                "rank 3 is on server \"node1\", whose ranks are 0 to 0");
    free(one);
    free(two);
    free(three);
}

static void documents_are_bounded(void **state) {
    trm_error err;
    trm_rank_table *table;
    CHECK_FAILS(trmi_table_parse("t", "", 0, &table, &err), TRM_INVALID, err, "empty");
    CHECK_FAILS(trmi_table_parse("t", " \n", 2, &table, &err), TRM_INVALID, err, "empty");
    CHECK_FAILS(trmi_table_parse("t", "[]", 2, &table, &err), TRM_INVALID, err,
                "a JSON object expected, found a list");
    char deep[64];
    memset(deep, '[', sizeof deep);
    CHECK_FAILS(trmi_table_parse("t", deep, sizeof deep, &table, &err), TRM_INVALID, err,
                "nested deeper than 16 levels");
    size_t bytes = 10000000;
    char *wide = malloc(bytes);
    memset(wide, ',', bytes);
    wide[0] = '[';
    CHECK_FAILS(trmi_table_parse("t", wide, bytes, &table, &err), TRM_INVALID, err,
                "more than 2000000 values");
    free(wide);
    CHECK_FAILS(trm_rank_table_read("/nowhere/table.json", &table, &err), TRM_INVALID, err,
                "No such file or directory");
    char *pending = replace_first(v1, "completed", "initializing");
    CHECK_FAILS(trmi_table_parse("t", pending, strlen(pending), &table, &err), TRM_PENDING, err,
                "\"initializing\"");
    free(pending);
}

static void odd_tables_warn(void **state) {
    char *text = replace_first(lab, "\"910\"", "\"950\"");
    trm_rank_table *table = read_good(text);
    assert_int_equal(table->warnings.count, 1);
    assert_non_null(strstr(table->warnings.lines[0], "chip_info is \"950\""));
    trm_rank_table_destroy(table);
    free(text);
    text = replace_first(lab, "\"device_id\":\"1\"", "\"device_id\":\"5\"");
    table = read_good(text);
    assert_non_null(strstr(table->warnings.lines[0], "both halves"));
    trm_rank_table_destroy(table);
    free(text);
    text = replace_first(v1, "\"server_count\":\"2\",", "");
    table = read_good(text);
    assert_non_null(strstr(table->warnings.lines[0], "server_count is missing"));
    trm_rank_table_destroy(table);
    free(text);
    text = replace_first(v1, "node1", "zzz");
    table = read_good(text);
    assert_non_null(strstr(table->warnings.lines[0], "dictionary order"));
    trm_rank_table_destroy(table);
    free(text);
}

static void digest_is_of_the_meaning(void **state) {
    uint8_t a[32], b[32];
    trm_rank_table *table = read_good(v1);
    trmi_table_digest(table, a);
    trm_rank_table_destroy(table);
    char *spaced = replace_first(v1, "\"server_count\":\"2\"", " \"server_count\" :\n \"2\"");
    table = read_good(spaced);
    trmi_table_digest(table, b);
    trm_rank_table_destroy(table);
    assert_memory_equal(a, b, 32);
    free(spaced);
    char *other = replace_first(v1, "10.1.0.4", "10.1.0.5");
    table = read_good(other);
    trmi_table_digest(table, b);
    trm_rank_table_destroy(table);
    assert_memory_not_equal(a, b, 32);
    free(other);
}

static void write_file(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void make_and_merge_round_trip(void **state) {
    trm_error err;
    char *json, dir[] = "/tmp/ranktableXXXXXX", a[64], b[64];
    uint8_t digest[2][32];
    assert_non_null(mkdtemp(dir));
    sprintf(a, "%s/a.json", dir);
    sprintf(b, "%s/b.json", dir);
    for (int form = TRM_RANK_TABLE_GROUPS; form <= TRM_RANK_TABLE_V1; form += 2) {
        trm_rank_table_host one = {.host = "10.0.0.9", .devices = 2};
        trm_rank_table_host two = {.host = "node\"2", .devices = 3};
        CHECK_OK(trm_rank_table_make(&one, 1, form, &json, &err), err);
        write_file(a, json);
        /* the same hosts are the same job, however they are spelled */
        trm_rank_table *first = read_good(json);
        trmi_table_digest(first, digest[form == TRM_RANK_TABLE_V1]);
        trm_rank_table_destroy(first);
        trm_free(json);
        CHECK_OK(trm_rank_table_make(&two, 1, form, &json, &err), err);
        write_file(b, json);
        trm_free(json);
        /* argument order decides, not names */
        CHECK_OK(trm_rank_table_merge((const char *const[]){b, a}, 2, &json, &err), err);
        trm_rank_table *table = read_good(json);
        assert_int_equal(table->form, form);
        assert_int_equal(trm_rank_table_size(table), 5);
        assert_string_equal(trm_rank_table_entry(table, 0).server_id, "node\"2");
        assert_string_equal(trm_rank_table_entry(table, 3).server_id, "10.0.0.9");
        assert_int_equal(trm_rank_table_entry(table, 4).device_id, 1);
        trm_free(json);
        CHECK_OK(trm_rank_table_text(table, false, &json, &err), err);
        assert_non_null(strstr(json, "5 ranks on 2 servers"));
        trm_free(json);
        CHECK_OK(trm_rank_table_text(table, true, &json, &err), err);
        assert_non_null(strstr(json, "\"server_id\": \"node\\\"2\", \"first_rank\": 0"));
        trm_free(json);
        trm_rank_table_destroy(table);
        CHECK_FAILS(trm_rank_table_merge((const char *const[]){a, a}, 2, &json, &err), TRM_INVALID,
                    err, "in an earlier file too");
    }
    assert_memory_equal(digest[0], digest[1], 32);
    write_file(b, lab);
    CHECK_FAILS(trm_rank_table_merge((const char *const[]){a, b}, 2, &json, &err), TRM_INVALID, err,
                "only tables of one form");
    trm_rank_table_host twice[] = {{.host = "x", .devices = 1}, {.host = "x", .devices = 1}};
    CHECK_FAILS(trm_rank_table_make(twice, 2, TRM_RANK_TABLE_V1, &json, &err), TRM_INVALID, err,
                "listed twice");
    twice[1] = (trm_rank_table_host){.host = "y"};
    CHECK_FAILS(trm_rank_table_make(twice, 2, TRM_RANK_TABLE_V1, &json, &err), TRM_INVALID, err,
                "1 to 4096 devices");
    unlink(a);
    unlink(b);
    rmdir(dir);
}

static void hccn_conf_gives_addresses(void **state) {
    trm_error err;
    const char *const *ips;
    int32_t count;
    char path[] = "/tmp/hccnXXXXXX", *json;
    close(mkstemp(path));
    write_file(path, "address_0=192.168.100.101\nnetmask_0=255.255.255.0\n"
                     "address_1=192.168.101.101\r\n");
    CHECK_OK(trm_hccn_conf_read(path, &ips, &count, &err), err);
    assert_int_equal(count, 2);
    trm_rank_table_host host = {.host = "10.0.0.1", .devices = 2, .device_ips = ips};
    CHECK_OK(trm_rank_table_make(&host, 1, TRM_RANK_TABLE_GROUPS, &json, &err), err);
    assert_non_null(strstr(json, "\"chip_info\": \"910\""));
    assert_non_null(strstr(json, "\"device_ip\": \"192.168.101.101\""));
    trm_rank_table_destroy(read_good(json));
    trm_free(json);
    trm_free((void *)(uintptr_t)ips);
    write_file(path, "address_1=192.168.100.101\n");
    CHECK_FAILS(trm_hccn_conf_read(path, &ips, &count, &err), TRM_INVALID, err,
                "address_0 is missing");
    write_file(path, "address_x=1\n");
    CHECK_FAILS(trm_hccn_conf_read(path, &ips, &count, &err), TRM_INVALID, err, "line 1");
    unlink(path);
}

/* The text of a table of servers with 8 ranks each. */
typedef struct table_text {
    char *text;
    size_t room;
} table_text;

/* Parses a table of `servers` servers. */
static void parse_servers(void *context, int64_t servers) {
    const table_text *t = context;
    char *text = t->text;
    trm_error err;
    size_t used =
        (size_t)sprintf(text, "{\"version\":\"1.0\",\"status\":\"completed\",\"server_list\":[");
    for (int s = 0; s < servers; s++) {
        used += (size_t)sprintf(text + used, "%s{\"server_id\":\"n%05d\",\"device\":[",
                                s ? "," : "", s);
        for (int d = 0; d < 8; d++) {
            used += (size_t)sprintf(text + used,
                                    "%s{\"device_id\":\"%d\",\"device_ip\":\"10.%d.%d.%d\","
                                    "\"rank_id\":\"%d\"}",
                                    d ? "," : "", d, d, s / 256, s % 256, s * 8 + d);
        }
        used += (size_t)sprintf(text + used, "]}");
    }
    used += (size_t)sprintf(text + used, "]}");
    assert_true(used < t->room);
    trm_rank_table *table;
    CHECK_OK(trmi_table_parse("big", text, used, &table, &err), err);
    assert_int_equal(trm_rank_table_size(table), servers * 8);
    trm_rank_table_destroy(table);
}

/* 65,536 ranks */
static void large_tables_take_no_quadratic_time(void **state) {
    (void)state;
    table_text t = {.text = malloc(16u << 20), .room = 16u << 20};
    check_growth(parse_servers, &t, 512);
    free(t.text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_spelling_is_read),
        cmocka_unit_test(every_rule_has_its_message),
        cmocka_unit_test(interleaved_servers_are_refused),
        cmocka_unit_test(documents_are_bounded),
        cmocka_unit_test(odd_tables_warn),
        cmocka_unit_test(digest_is_of_the_meaning),
        cmocka_unit_test(make_and_merge_round_trip),
        cmocka_unit_test(hccn_conf_gives_addresses),
        cmocka_unit_test(large_tables_take_no_quadratic_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
