// quire tokenize [MODEL] [--ids] [--no-special] TEXT: id and text of a token per line, or the ids alone on one line.
// TEXT `-`: stdin. --no-special neither adds special tokens nor reads them in the text.
#include "buf.h"
#include "commands.h"
#include "process/console.h"
#include "process/setup.h"
#include "tokenizer.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

// In quotes, as in JSON but for bytes that are no text, or that a terminal obeys: \xNN.
static void print_piece(const char *text, size_t len) {
    struct buf b = {0};
    for (size_t i = 0, n; i < len; i += n) {
        const unsigned char *s = (const unsigned char *)text + i;
        size_t bad, whole = utf8_sequence(s, len - i, &bad);
        bool control = whole == 2 && s[0] == 0xc2 && s[1] < 0xa0;
        n = whole && !control ? whole : 1;
        if (whole && !control)
            json_escape(&b, text + i, n);
        else
            buf_fmt(&b, "\\x%02x", s[0]);
    }
    printf("\"%.*s\"\n", (int)b.len, b.data ? b.data : "");
    buf_free(&b);
}

static void print_ids(const struct tokenizer *t, const struct token_buf *ids, bool only_ids) {
    for (size_t i = 0; i < ids->len; i++) {
        if (only_ids) {
            printf("%s%d", i ? " " : "", ids->ids[i]);
            continue;
        }
        size_t len;
        const char *text = tokenizer_bytes(t, ids->ids[i], true, &len);
        printf("%d ", ids->ids[i]);
        print_piece(text, len);
    }
    if (only_ids)
        putchar('\n');
}

int cmd_tokenize(const struct config *c) {
    struct err err = {0};
    if (c->args.len != 2) {
        complain("usage: quire tokenize [MODEL] [--ids] [--no-special] TEXT");
        return EXIT_USAGE;
    }
    struct buf text = {0};
    if (strcmp(c->args.items[1], "-") == 0) {
        char chunk[65536];
        size_t n;
        while ((n = fread(chunk, 1, sizeof chunk, stdin)) > 0)
            buf_add(&text, chunk, n);
        if (ferror(stdin)) {
            complain("cannot read standard input: %s", strerror(errno));
            buf_free(&text);
            return EXIT_USAGE;
        }
    } else {
        buf_str(&text, c->args.items[1]);
    }
    struct tokenizer *t = tokenizer_open(c->args.items[0], &err);
    struct token_buf ids = {0};
    unsigned flags = c->no_special ? 0u : TOKENIZE_PARSE_SPECIAL | TOKENIZE_ADD_SPECIAL;
    int rc = 0;
    if (!t) {
        complain("%s", err.msg);
        rc = setup_engine_exit_code(err.code);
    } else {
        enum status status = text.failed ? STATUS_NOMEM : STATUS_OK;
        if (status == STATUS_OK)
            status = tokenizer_encode(t, text.data ? text.data : "", text.len, flags, &ids);
        if (status == STATUS_OK)
            print_ids(t, &ids, c->ids);
        else
            rc = setup_encode_failed(status);
    }
    token_buf_free(&ids);
    buf_free(&text);
    tokenizer_free(t);
    return rc;
}
