#include "page.h"

#include "http/http.h"
#include "requests/reply.h"

#include <string.h>
#include <strings.h>

#define HTML "text/html; charset=utf-8"
#define STYLE "text/css; charset=utf-8"
#define SCRIPT "text/javascript; charset=utf-8"

#define FILES(X)                                                                                             \
    X(html, "index.html", HTML)                                                                              \
    X(style, "style.css", STYLE)                                                                             \
    X(chat_style, "chat.css", STYLE)                                                                         \
    X(icon, "icon.svg", "image/svg+xml")                                                                     \
    X(answer, "answer.js", SCRIPT)                                                                           \
    X(api, "api.js", SCRIPT)                                                                                 \
    X(app, "app.js", SCRIPT)                                                                                 \
    X(chat, "chat.js", SCRIPT)                                                                               \
    X(chats, "chats.js", SCRIPT)                                                                             \
    X(colours, "colours.js", SCRIPT)                                                                         \
    X(composer, "composer.js", SCRIPT)                                                                       \
    X(dom, "dom.js", SCRIPT)                                                                                 \
    X(engine, "engine.js", SCRIPT)                                                                           \
    X(files, "files.js", SCRIPT)                                                                             \
    X(history, "history.js", SCRIPT)                                                                         \
    X(markdown, "markdown.js", SCRIPT)                                                                       \
    X(math, "math.js", SCRIPT)                                                                               \
    X(message, "message.js", SCRIPT)                                                                         \
    X(notice, "notice.js", SCRIPT)                                                                           \
    X(plot, "plot.js", SCRIPT)                                                                               \
    X(pool, "pool.js", SCRIPT)                                                                               \
    X(settings, "settings.js", SCRIPT)                                                                       \
    X(sidebar, "sidebar.js", SCRIPT)                                                                         \
    X(store, "store.js", SCRIPT)                                                                             \
    X(tokens, "tokens.js", SCRIPT)                                                                           \
    X(tree, "tree.js", SCRIPT)                                                                               \
    X(marked, "vendor/marked.js", SCRIPT)

// PAGE_FOLDER is where the files lie when this is compiled.
#define EMBED(name, file, type)                                                                              \
    __asm__(".pushsection .rodata\n"                                                                         \
            "page_" #name ":\n"                                                                              \
            ".incbin \"" PAGE_FOLDER "/" file "\"\n"                                                         \
            "page_" #name "_end:\n"                                                                          \
            ".popsection\n");                                                                                \
    extern const char page_##name[] __attribute__((visibility("hidden")));                                   \
    extern const char page_##name##_end[] __attribute__((visibility("hidden")));
FILES(EMBED)

static const struct page_file {
    const char *name, *type, *text, *end;
} files[] = {
#define ROW(name, file, type) {file, type, page_##name, page_##name##_end},
    FILES(ROW)};

static const char folder[] = "/page/";

// Nothing but the page's own files runs, is shown or is asked; no other page may frame it or post from it.
static const char policy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri "
    "'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

// Whether a list of media ranges names text/html, as browsers' do; */* alone is no browser that shows a page.
static bool accepts_html(const char *accept) {
    static const char html[] = "text/html";
    size_t n = sizeof html - 1;
    while (accept && *accept) {
        accept += strspn(accept, " \t,");
        if (strncasecmp(accept, html, n) == 0 && (!accept[n] || strchr(" \t,;", accept[n])))
            return true;
        accept += strcspn(accept, ",");
    }
    return false;
}

bool page_wanted(const struct app *app, const struct http_request *request, bool root) {
    if (app->config->no_page || strcmp(request->method, "GET") != 0)
        return false;
    if (root)
        return !request->is_head && accepts_html(request->head.accept);
    return strncmp(request->path, folder, sizeof folder - 1) == 0;
}

void page_reply(struct http_request *request) {
    const char *name = strcmp(request->path, "/") == 0 ? "index.html" : request->path + sizeof folder - 1;
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        if (strcmp(files[i].name, name) != 0)
            continue;
        http_header(request, "Content-Security-Policy", policy);
        http_header(request, "X-Content-Type-Options", "nosniff");
        http_header(request, "Referrer-Policy", "no-referrer");
        http_header(request, "Cross-Origin-Opener-Policy", "same-origin");
        http_header(request, "Cross-Origin-Resource-Policy", "same-origin");
        http_header(request, "Cache-Control", "no-cache"); // another version may serve on this port tomorrow
        http_header(request, "Vary", "Accept");
        http_reply(request, 200, files[i].type, files[i].text, (size_t)(files[i].end - files[i].text));
        return;
    }
    REPLY_ERROR(request, 404, NULL, NULL, "The page has no file '%.60s'.", name);
}
