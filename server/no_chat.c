// Stands in for the template engine in a tree without it (see CMakeLists.txt): every template is refused.
#include "chat.h"

struct chat_template *chat_template_new(const char *source, size_t len, struct err *err) {
    (void)source;
    (void)len;
    err_set(err, STATUS_FORMAT, "this build has no template engine");
    return NULL;
}
void chat_template_free(struct chat_template *t) { (void)t; }
struct chat_arena *chat_arena_new(void) {
    return NULL;
}
void chat_arena_free(struct chat_arena *a) { (void)a; }
struct chat_value *chat_bool(struct chat_arena *a, bool v) {
    return (void)a, (void)v, NULL;
}
struct chat_value *chat_string(struct chat_arena *a, const char *text, size_t len, bool content) {
    return (void)a, (void)text, (void)len, (void)content, NULL;
}
struct chat_value *chat_list(struct chat_arena *a) {
    return (void)a, NULL;
}
void chat_list_add(struct chat_arena *a, struct chat_value *list, struct chat_value *v) {
    (void)a, (void)list, (void)v;
}
struct chat_value *chat_dict(struct chat_arena *a) {
    return (void)a, NULL;
}
void chat_dict_set(struct chat_arena *a, struct chat_value *dict, const char *key, size_t len,
                   struct chat_value *v) {
    (void)a, (void)dict, (void)key, (void)len, (void)v;
}
enum status chat_render(const struct chat_template *t, struct chat_arena *a, const struct chat_value *globals,
                        const struct chat_segment **segments, size_t *num_segments, struct err *err) {
    (void)t, (void)a, (void)globals, (void)segments, (void)num_segments;
    return err_set(err, STATUS_INVALID, "this build has no template engine");
}
