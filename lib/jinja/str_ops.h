// Operations on strings that methods, filters and operators share. Lengths and positions that a template sees
// are in code points. Upper and lower case know Latin-1, Latin Extended-A, Greek and Cyrillic; other letters
// stay as they are.
#pragma once

#include "value.h"

bool text_is_space(uint32_t c); // Python's str.isspace()
bool text_is_upper(uint32_t c);
bool text_is_lower(uint32_t c);
bool text_is_digit(uint32_t c);
bool text_is_alpha(uint32_t c);
bool text_is_word(uint32_t c);
bool text_one_case(struct jinja *j, const struct str *s, bool upper); // has letters of this case alone

enum text_case_to { CASE_UPPER, CASE_LOWER, CASE_CAPITALIZE, CASE_TITLE, CASE_SWAP };
struct str *text_case(struct jinja *j, const struct str *s, enum text_case_to to);
// chars NULL: white space.
struct str *text_strip(struct jinja *j, const struct str *s, const struct str *chars, bool left, bool right);
// At most count times; negative: all.
struct str *text_replace(struct jinja *j, const struct str *s, const struct str *from, const struct str *to,
                         int64_t count);
struct list *text_lines(struct jinja *j, const struct str *s, bool keep); // keep: with their ends
struct str *text_escape(struct jinja *j, const struct str *s);            // & < > ' "
// As Python's int() and float() read them; false: no number, or over 400 characters.
bool text_parse_int(const struct str *s, int base, int64_t *out);
bool text_parse_float(const struct str *s, double *out);
