#include "report.h"

#include <errno.h>
#include <string.h>

// RFC 4180: quoted, quotes doubled; line breaks become spaces.
static void text(FILE *f, const char *s) {
    fputc('"', f);
    for (; *s; s++) {
        if (*s == '"')
            fputc('"', f);
        fputc((unsigned char)*s < 0x20 ? ' ' : *s, f);
    }
    fputc('"', f);
}

bool report_csv(const struct report *r, const char *path) {
    FILE *f = fopen(path, "w");
    if (!f)
        return false;
    fputs("index,conversation,turn,intended_s,sent_s,ttft_ms,ttft_from_send_ms,tpot_ms,e2el_ms,e2el_from_"
          "send_ms,"
          "client_queue_ms,client_send_lag_ms,max_itl_ms,input_tokens,output_tokens,cached_tokens,chunks,"
          "new_connection,good,status,error,message\n",
          f);
    for (size_t i = 0; i < r->run->num; i++) {
        const struct request_record *q = r->run->records[i];
        int64_t longest = 0;
        for (uint32_t c = 1; c < q->num_chunks; c++)
            if (q->at[c] - q->at[c - 1] > longest)
                longest = q->at[c] - q->at[c - 1];
        fprintf(f, "%u,%u,%u,%.6f,%.6f,", q->index, q->conversation, q->turn, (double)q->intended / 1e9,
                (double)q->sent / 1e9);
        bool ok = q->error == ERROR_NONE;
        if (ok && q->first)
            fprintf(f, "%.3f,%.3f,", (double)(q->first - q->intended) / 1e6,
                    (double)(q->first - q->sent) / 1e6);
        else
            fputs(",,", f);
        if (ok && q->first && q->output > 1)
            fprintf(f, "%.4f", (double)(q->last - q->first) / 1e6 / (q->output - 1));
        fputc(',', f);
        if (ok)
            fprintf(f, "%.3f,%.3f,", (double)(q->last - q->intended) / 1e6,
                    (double)(q->last - q->sent) / 1e6);
        else
            fputs(",,", f);
        if (q->sent)
            fprintf(f, "%.3f,%.3f,%.3f,", (double)(q->ready - q->intended) / 1e6,
                    (double)(q->sent - q->ready) / 1e6, (double)longest / 1e6);
        else
            fputs(",,,", f);
        fprintf(f, "%u,%u,%u,%u,%d,%s,%d,%s,", q->input, q->output, q->cached, q->num_chunks, q->connected,
                r->o->has_goals ? result_good(q, r->o) ? "1" : "0" : "", q->status,
                ok ? "" : error_name(q->error));
        text(f, q->message);
        fputc('\n', f);
    }
    bool written = !ferror(f);
    return fclose(f) == 0 && written;
}
