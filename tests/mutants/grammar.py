"""Mutants: grammars and what is sampled by them. tests/mutate.py says what a row is."""

BUILD = "lib/grammar/expr.c"
JSON = "lib/grammar/json_text.c"
STRING_TEXT = "lib/grammar/string_text.c"
ANALYSIS = "lib/grammar/analysis.c"
NETWORK = "lib/grammar/network.c"
MATCHER = "lib/grammar/matcher.c"
TRIE = "lib/grammar/token_trie.c"
CONSTRAINT = "lib/grammar/constraint.c"
CACHE = "lib/grammar/constraint_cache.c"
OUTPUT = "server/formats/output_grammar.c"
DFA_BUILD = "lib/grammar/regex/dfa_build.c"
DFA_OPS = "lib/grammar/regex/dfa_ops.c"
CODE_DFA = "lib/grammar/regex/code_dfa.c"
CODE_SET = "lib/grammar/regex/code_set.c"
REGEX = "lib/grammar/regex/regex_%s.c"
GBNF = "lib/grammar/lang/gbnf.c"
SOURCE = "lib/grammar/lang/source.c"
LARK = "lib/grammar/lang/lark%s.c"

ROWS = [
    (CODE_SET, "last < 0xd7ff ? last : 0xd7ff", "last", "test_grammar"),  # surrogates are characters
    (BUILD, "            back = after;", "            back = 0;", "test_grammar"),  # a stop that begins again within itself is missed
    (STRING_TEXT, "c < 0x20 ? 256 : 0", "0", "test_grammar"),  # control characters count as plain ones
    (STRING_TEXT, "EDGE(SLASH, short_escape(c))", "EDGE(SLASH, c)", "test_grammar"),  # a newline is escaped by itself
    (JSON, "if (max >= 0 && num_first > max)", "if (false)", "test_grammar"),  # more items than may be
    (JSON, "if (min <= i)", "if (min < i)", "test_grammar"),  # an array may not end where it may
    (ANALYSIS, "if (o->kinds[i].required && !(facts[o->kinds[i].value] & TAKES_TEXT))", "if (false)", "test_grammar"),  # nothing is a value
    (ANALYSIS, "required <= o->max &&", "true &&", "test_grammar"),  # more required members than may be
    (ANALYSIS, "facts[b->children[n->first + i - 1]] & TAKES_NOTHING", "false", "test_grammar"),  # left recursion behind what may be empty
    (NETWORK, "if (empty && n->max > MAX_EMPTY_TURNS)", "if (false)", "test_grammar"),  # a closure of 100,000 threads
    (NETWORK, "return skip ? fork : body;", "return fork;", "test_grammar"),  # one or more is none or more
    (MATCHER, "if (n->values[kind] < 0 || (k->once && seen_bit(m, n, f, kind)))", "if (n->values[kind] < 0)", "test_grammar"),  # a key twice
    (MATCHER, "if (kind <= f->b)", "if (false)", "test_grammar"),  # properties in any order
    (MATCHER, "return false; // it would come too late", "continue;", "test_grammar"),  # a required member is skipped
    (MATCHER, "!n->free_ahead[0] &&", "false &&", "test_grammar"),  # too few members are left for the minimum
    (MATCHER, "next >= 0 && key_ahead(m, n, &m->frames[t->stack], next)", "next >= 0", "test_grammar"),  # a key that leads nowhere
    (MATCHER, "return f->c >= n->o->min && missing(m, n, f) == 0;", "return missing(m, n, f) == 0;", "test_grammar"),  # fewer than the minimum
    (MATCHER, "l->max < 0 && f.a == l->min ? f.a : f.a + 1", "f.a + 1", "test_grammar"),  # counts without end are states without end
    (TRIE, "c < 0x20 || c == '\"' || c == '\\\\'", "c < 0x20", "test_grammar"),  # quotes are plain
    (TRIE, "for (int32_t id = n->token; id >= 0; id = t->same[id])", "for (int32_t id = n->token; id >= 0; id = -1)",
            "test_grammar"),  # of two tokens with the same bytes one is forgotten
    (TRIE, "if (next < 0 || matcher_walk_work(m) > LEVEL_WORK ||", "if (matcher_walk_work(m) > LEVEL_WORK ||", "test_grammar"),  # plain tokens that are not allowed
    (TRIE, "if (++chars == level_chars[level + 1])", "if (++chars >= 1)", "test_grammar"),  # longer runs than may be
    (CONSTRAINT, "f->num -= (size_t)n;", "f->num -= 1;", "test_server_structured"),  # one draft is taken back, not all
    (CONSTRAINT, "*matcher_note(c->matcher, c->owners[c->next_mask]) = 0;", ";", "test_server_structured"),  # another state's mask
    (MATCHER, "if (!l || !l->quiet || l->body", "if (!l || l->body", "test_grammar"),  # more is allowed than can be read
    (MATCHER, "if (e->walk != m->walk)", "if (e->walk == 0)", "test_grammar"),  # what is known already decides
    (MATCHER, "} else if (m->g->dfas[nfa->a].quiet[t->sub]) {", "} else if (m->g->dfas[nfa->a].plain[t->sub]) {", "test_grammar"),  # likewise of automata
    (MATCHER, "threads[j].stack = frame_number_of[threads[j].stack];", "threads[j].stack = frame_number_of[0];", "test_grammar"),  # who waits is another
    (NETWORK, "(n.min == 0 ? in.min <= 1 :", "(n.min == 0 ? true :", "test_grammar"),  # counts between are taken
    (TRIE, "over || (w->limit &&", "(w->limit &&", "test_grammar"),  # half a mask is taken for a whole one
    (CACHE, "made ? &c->counts.compiled : &c->counts.refused", "&c->counts.compiled", "test_server_structured"),  # what is refused counts as compiled
    (CACHE, "buf_int(&key, style->max_blanks);", "", "test_server_structured"),  # blanks where none may be
    (OUTPUT, "types & ARGUMENT_INTEGER ? (unsigned)GRAMMAR_NUMBER : 0", "0", "test_server_arguments"),  # integers cannot be written between tags
    ("lib/grammar/tags.c", "unsigned others = t->told ? 0 : types & ~(unsigned)GRAMMAR_STRING;", "unsigned others = 0;", "test_server_arguments"),  # a text that is read as a number
    ("lib/grammar/tags.c", "d = intersection(d, gb_dfa_without(b, t->stop, strlen(t->stop)), &err);", ";", "test_server_structured"),  # a text that ends itself
    (JSON, "(q == 0 || d->label[next] >= 0)", "false", "test_server_structured"),  # keys with blanks at their ends
    (OUTPUT, "return !r->one_call &&", "return", "test_server_structured"),  # calls behind the only one
    (MATCHER, "if (t->guard >= 0 && m->guard == DFA_DEAD)", "if (false)", "test_server_custom"),  # a text of a grammar ends its own string
    (STRING_TEXT, "if (byte_set_has(&s, escaped_byte(i)))", "if (false)", "test_server_custom"),  # a text of a grammar is not escaped
    (OUTPUT, "if (binds(r, tool) && json_object_get(custom, \"definition\"))", "if (false)", "test_server_custom"),  # a custom tool takes any text
    (OUTPUT, "braces.quote_token = r->tokens[i];", "braces.quote_token = -1;", "test_server_literals"),  # strings of text between control tokens
    (JSON, "            leave_out_unwritable(b, &copy);", "            ;", "test_server_literals"),  # keys that cannot be written are waited for
    (JSON, "e->label[q] = q ? d->label[q - 1] : -1;", "e->label[q] = d->label[q ? q - 1 : 0];", "test_server_literals"),  # keys without a byte
    (JSON, "*pattern = b->literals  ?", "*pattern = !b ?", "test_server_literals"),  # escapes that Python reads otherwise
    ("lib/grammar/token_trie.c", "(!control && memchr(p, 0xff, len))", "false", "test_server_literals"),  # bytes spell a control token
    (JSON, "    if (b->literals != l)\n", "    if (false)\n", "test_server_literals"),  # values of other calls' literals
    (MATCHER, "byte == n->o->key_end", "byte == '\"'", "test_server_literals"),  # a key without a quote has no end
    ("lib/grammar/constraint_cache.c", "buf_add(b, l->words[i], strlen(l->words[i]) + 1);", ";", "test_server_literals"),  # a grammar of other words
    (OUTPUT, "if (r->thinking)\n        return PART_SEQ(a, thoughts, rest);", "", "test_server_structured"),  # the prompt has begun to think
    (DFA_BUILD, "if (d->next[i] >= 0 && !alive[d->next[i]])", "if (false)", "test_dfa"),  # dead ends
    (DFA_BUILD, "    m->count[0] += rest;", "    ;", "test_dfa"),  # a part without those that were not looked at
    (DFA_BUILD, "i < to && g % num != largest; i++)", "i < to && g % num != largest && g > 1; i++)", "test_dfa"),  # sets are split too seldom
    (DFA_OPS, "t < 0 && i >= min ? 0 : -1", "t < 0 ? 0 : -1", "test_dfa"),  # texts that are too short
    (DFA_OPS, "if (c->keep && !c->keep(c->arg, set))", "if (false)", "test_dfa"),  # sets that are not kept
    (DFA_OPS, "if (p->shortest && b->d->label[s] >= 0)", "if (false)", "test_lark"),  # a lazy terminal goes on
    (CODE_DFA, "if (first == begin && last >= after - 1) {", "if (last >= after - 1) {", "test_regex_dfa"),  # too many bytes follow
    (REGEX % "dfa", "(state->kind == NFA_BEGIN && at_begin)", "(state->kind == NFA_BEGIN)", "test_regex_dfa"),  # ^ anywhere
    (REGEX % "dfa", "        s->members[num++] = -1;", "        ;", "test_regex_dfa"),  # the start is met again behind text
    (REGEX % "dfa", "if (d && other && negated) {", "if (d && other && !negated) {", "test_regex_dfa"),  # what must not stand there must
    (REGEX % "dfa", "        num -= num > 0;\n", "", "test_regex_dfa"),  # {2,} is {3,}
    (REGEX % "expr", "is_plain(t, children[i], at_begin && i == first, at_end && i == last - 1)", "is_plain(t, children[i], at_begin, at_end)",
     "test_regex_dfa"),  # anchors inside say nothing
    (REGEX % "tree", "if (depth >= MAX_NESTING) {", "if (false) {", "test_regex_dfa"),  # as deep as it likes
    (REGEX % "tree", "        p->flags = flags;\n", "        ;\n", "test_regex_dfa"),  # a group's flags behind it
    (SOURCE, "column += !utf8_continues(*p);", "column++;", "test_json_gbnf"),  # columns in bytes
    (GBNF, "if (nested || (line.at < line.end && !at_definition(line)))", "if (nested || line.at < line.end)", "test_json_gbnf"),  # a rule runs into the next
    (GBNF, "        others[(unsigned char)code[i]] = false;\n", "", "test_json_gbnf"),  # any token but one is any token
    (LARK % "", "l->ignored == EXPR_NONE ? root :", "true ? root :", "test_lark"),  # nothing is ignored at the end
    (LARK % "_terminals", "if (d->in_progress)", "if (false)", "test_lark"),  # terminals without end
    (LARK % "_tokens", "(peek(s, 0) == '-' && is_word(peek(s, 1)))", "peek(s, 0) == '-'", "test_lark"),  # a name takes an arrow
]
