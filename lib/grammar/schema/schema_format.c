// See schema_format.h. Sources: RFC 3339 (dates), RFC 5321 (email), RFC 1123 (hostname), RFC 2673 and 4291 (addresses),
// RFC 3986 and 3987 (URI, IRI), RFC 4122 (UUID), RFC 6901 (JSON pointers), RFC 6570 (URI templates), ISO 8601 as RFC 3339,
// appendix A has it (durations).
#include "schema_format.h"

#include <stddef.h>

// ---- dates

#define LEAP_YEAR "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)"
#define DATE                                                                                                 \
    "(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|"    \
    "02-(?:0[1-9]|1[0-9]|2[0-8]))|" LEAP_YEAR "-02-29)"
#define HOUR "(?:[01][0-9]|2[0-3])"
#define MINUTE "[0-5][0-9]"
#define FRACTION "(?:\\.[0-9]+)?"
#define OFFSET "(?:[Zz]|[+-]" HOUR ":" MINUTE ")"
// A leap second is the last one of a day at UTC. It is taken where the offset is zero, not at other offsets.
#define TIME "(?:" HOUR ":" MINUTE ":[0-5][0-9]" FRACTION OFFSET "|23:59:60" FRACTION "(?:[Zz]|[+-]00:00))"

// ---- durations

#define DURATION_TIME "T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)"
#define DURATION_DATE "(?:[0-9]+D|[0-9]+M(?:[0-9]+D)?|[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?)"
#define DURATION "P(?:" DURATION_DATE "(?:" DURATION_TIME ")?|" DURATION_TIME "|[0-9]+W)"

// ---- addresses

#define BYTE "(?:[0-9]|[1-9][0-9]|1[0-9]{2}|2[0-4][0-9]|25[0-5])"
#define IPV4 "(?:" BYTE "\\." BYTE "\\." BYTE "\\." BYTE ")"
#define H16 "[0-9A-Fa-f]{1,4}"
#define LS32 "(?:" H16 ":" H16 "|" IPV4 ")"
#define IPV6                                                                                                 \
    "(?:(?:" H16 ":){6}" LS32 "|::(?:" H16 ":){5}" LS32 "|(?:" H16 ")?::(?:" H16 ":){4}" LS32 "|(?:(?:" H16  \
    ":){0,1}" H16 ")?::(?:" H16 ":){3}" LS32 "|(?:(?:" H16 ":){0,2}" H16 ")?::(?:" H16 ":){2}" LS32          \
    "|(?:(?:" H16 ":){0,3}" H16 ")?::" H16 ":" LS32 "|(?:(?:" H16 ":){0,4}" H16 ")?::" LS32 "|(?:(?:" H16    \
    ":){0,5}" H16 ")?::" H16 "|(?:(?:" H16 ":){0,6}" H16 ")?::)"

#define ALNUM "[A-Za-z0-9]"
#define LABEL "(?:" ALNUM "(?:[A-Za-z0-9-]{0,61}" ALNUM ")?)"
#define HOSTNAME LABEL "(?:\\." LABEL ")*"

#define ATEXT "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]"
#define QUOTED "\"(?:[ !#-\\[\\]-~]|\\\\[ -~])*\""
// Labels of a domain are of any length here: counting them beside maxLength takes too large an automaton.
#define DOMAIN_LABEL "(?:" ALNUM "(?:[A-Za-z0-9-]*" ALNUM ")?)"
#define EMAIL                                                                                                \
    "(?:" ATEXT "+(?:\\." ATEXT "+)*|" QUOTED ")@(?:" DOMAIN_LABEL "(?:\\." DOMAIN_LABEL ")*|\\[(?:" IPV4    \
    "|IPv6:" IPV6 ")\\])"
#define ATEXT_U "(?:" ATEXT "|[^\\x00-\\x7f])"
#define LABEL_U                                                                                              \
    "(?:(?:[A-Za-z0-9]|[^\\x00-\\x7f])(?:(?:[A-Za-z0-9-]|[^\\x00-\\x7f])*(?:[A-Za-z0-9]|[^\\x00-\\x7f]))?)"
#define QUOTED_U "\"(?:[ !#-\\[\\]-~]|[^\\x00-\\x7f]|\\\\[ -~])*\""
#define EMAIL_U "(?:" ATEXT_U "+(?:\\." ATEXT_U "+)*|" QUOTED_U ")@" LABEL_U "(?:\\." LABEL_U ")*"

// ---- URIs

#define PERCENT "%[0-9A-Fa-f]{2}"
#define SCHEME "[A-Za-z][A-Za-z0-9+.-]*:"
#define UNRESERVED "A-Za-z0-9._~\\-"
#define SUB "!$&'()*+,;="
// more: characters of IRIs, as part of a class
#define AUTHORITY(more)                                                                                      \
    "//(?:(?:[" UNRESERVED SUB ":" more "]|" PERCENT ")*@)?(?:\\[(?:" IPV6                                   \
    "|[vV][0-9A-Fa-f]+\\.[" UNRESERVED SUB ":]+)\\]|(?:[" UNRESERVED SUB more "]|" PERCENT ")*)(?::[0-9]*)?"
#define PCHAR(more) "(?:[" UNRESERVED SUB ":@" more "]|" PERCENT ")"
#define TAIL(more, private)                                                                                  \
    "(?:\\?(?:[" UNRESERVED SUB ":@/?" more private "]|" PERCENT ")*)?(?:#(?:[" UNRESERVED SUB ":@/?" more   \
                                                    "]|" PERCENT ")*)?"
#define ABEMPTY(more) "(?:/" PCHAR(more) "*)*"
#define HIER(more)                                                                                           \
    "(?:" AUTHORITY(more)                                                                                    \
        ABEMPTY(more) "|/(?:" PCHAR(more) "+" ABEMPTY(more) ")?|" PCHAR(more) "+" ABEMPTY(more) "|)"
#define NOSCHEME(more)                                                                                       \
    "(?:" AUTHORITY(more) ABEMPTY(more) "|/(?:" PCHAR(more) "+" ABEMPTY(more) ")?|(?:[" UNRESERVED SUB       \
                                                                              "@" more "]|" PERCENT          \
                                                                              ")+" ABEMPTY(more) "|)"
#define URI(more, private) SCHEME HIER(more) TAIL(more, private)
#define URI_REFERENCE(more, private) "(?:" URI(more, private), "|" NOSCHEME(more) TAIL(more, private) ")"
#define UCS                                                                                                  \
    "\\u{a0}-\\u{d7ff}\\u{f900}-\\u{fdcf}\\u{fdf0}-\\u{ffef}\\u{10000}-\\u{1fffd}\\u{20000}-\\u{efffd}"
#define PRIVATE "\\u{e000}-\\u{f8ff}\\u{f0000}-\\u{ffffd}\\u{100000}-\\u{10fffd}" // in queries of IRIs

#define VARCHAR "(?:[A-Za-z0-9_]|" PERCENT ")"
#define VARSPEC VARCHAR "(?:\\.?" VARCHAR ")*(?::[1-9][0-9]{0,3}|\\*)?"
#define URI_TEMPLATE                                                                                         \
    "(?:[^\\x00-\\x20\"'%<>\\\\^`{|}]|" PERCENT "|\\{[+#./;?&=,!@|]?" VARSPEC "(?:," VARSPEC ")*\\})*"

#define POINTER "(?:/(?:[^/~]|~[01])*)*"

const struct string_format string_formats[] = {
    {"date", {DATE}, 0},
    {"time", {TIME}, 0},
    {"date-time", {DATE "[Tt]" TIME}, 0},
    {"duration", {DURATION}, 0},
    {"email", {EMAIL}, 0},
    {"idn-email", {EMAIL_U}, 0},
    {"hostname", {HOSTNAME}, 253},
    {"ipv4", {IPV4}, 0},
    {"ipv6", {IPV6}, 0},
    {"uri", {URI("", "")}, 0},
    {"uri-reference", {URI_REFERENCE("", "")}, 0},
    {"iri", {URI(UCS, PRIVATE)}, 0},
    {"iri-reference", {URI_REFERENCE(UCS, PRIVATE)}, 0},
    {"uri-template", {URI_TEMPLATE}, 0},
    {"uuid", {"[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}"}, 0},
    {"json-pointer", {POINTER}, 0},
    {"relative-json-pointer", {"(?:0|[1-9][0-9]*)(?:#|" POINTER ")"}, 0},
    {"idn-hostname", {NULL}, 0}, // needs tables of Unicode's bidirectional classes
    {"regex", {NULL}, 0},        // not a regular language
    {NULL, {NULL}, 0},
};
