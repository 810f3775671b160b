"""Mutants: JSON Schema. tests/mutate.py says what a row is."""

FILE = "lib/grammar/schema/schema_%s.c"

ROWS = [
    (FILE % "goal", "(v->len == 1 || schema_draft(s, v) <= DRAFT_7)", "(true)", "test_schema"),  # what is beside $ref is lost
    (FILE % "read", "c = text[++i] == '0' ? '~' : '/';", "c = text[++i];", "test_schema"),  # ~1 of a pointer
    (FILE % "uri", "if (n == 2 && segment[0] == '.' && segment[1] == '.')", "if (false)", "test_schema"),  # .. of a path
    (FILE % "keywords", "*integers = *integers && !numbers;", "", "test_schema"),  # numbers beside integers
    (FILE % "clause", "if (o->atom == a)", "if (false)", "test_schema"),  # a schema that refers to itself
    (FILE % "expand", "return UNKNOWN; // it refers to itself", ";", "test_schema"),  # the same, as one alternative
    (FILE % "assert", "f.min = !exclusive;", "f.min = exclusive;", "test_schema"),  # a bound that is negated
    (FILE % "assert", "if (!negated && max >= 0 && min > max)", "if (false)", "test_schema"),  # maxContains 0
    (FILE % "assert", "return negation == ATOM_NEVER || SAY_OR(p, fact_required(name), f);",
     "return negation == ATOM_NEVER || SAY_OR(p, f);", "test_schema"),  # an absent member breaks properties
    (FILE % "say", "facts[m++] = (struct fact){.kind = FACT_ATOM, .atom = atom_not(atoms[j])};", ";", "test_schema"),  # oneOf as anyOf
    (FILE % "say", "no[1] = fact_atom(p, else_, negated);", ";", "test_schema"),  # else
    (FILE % "number", "if (verdict == 0 && d->num_frac > 0)", "if (false)", "test_schema"),  # 1 is 1.5
    (FILE % "number", "if (d->negative != s->negative) // which may be -0: still on that side of d\n        return s->negative ? -1 : 1;",
     "", "test_schema"),  # signs
    (FILE % "number", "d = shortened(s, d)", "d", "test_schema"),  # digits without end
    (FILE % "number", "rest = rest * 10 % r->divisor;", "rest = 1;", "test_schema"),  # 5 as a multiple of 2.5
    (FILE % "string", "to->count = from->count < 0 ? -1 : from->count + begins(r->byte[class]);",
     "to->count = from->count < 0 ? -1 : from->count + 1;", "test_schema"),  # bytes count as characters
    (FILE % "array", "if (p.slot < a->num_first && own.min < p.slot + 1)", "if (false)", "test_schema"),  # what contains asks for is left out
    (FILE % "array", "own.rest = schema_goal_and(s, a->rest, atom_not(wanted));", ";", "test_schema"),  # more than maxContains
    (FILE % "object", "*may = !(n->required && goal_is_empty(s, n->goal));", "*may = true;", "test_schema"),  # what cannot be is required
    (FILE % "object", "own.names[i].required = true;", ";", "test_schema"),  # a member that has to be there
    (FILE % "keys", "return r->names[k->first].label;", "return -1;", "test_schema"),  # no properties at all
    (FILE % "unevaluated", "if (o->detached)", "if (false)", "test_schema_suites"),  # what stands within `not` counts
]
