// Colours of code: comments, strings, numbers, keywords, names of functions. One pass, by rules that families of languages share.
import { el } from "./dom.js";

const MAX_TEXT = 60000; // longer code has one colour

const C_WORDS =
  "auto bool break case catch char class const constexpr continue default delete do double else enum explicit extern false float for goto if " +
  "inline int long namespace new noexcept nullptr operator override private protected public return short signed sizeof static struct switch " +
  "template this throw true try typedef typename union unsigned using virtual void volatile while NULL size_t " +
  "abstract boolean byte extends final finally implements import instanceof interface native null package super synchronized throws var " +
  "async await debugger export from function in let of typeof undefined yield type readonly keyof declare as is " +
  "func defer go chan map range select fallthrough nil string error fn impl match mod move mut pub ref self Self trait unsafe use where crate " +
  "dyn loop " +
  "val fun when object companion data sealed foreach namespace get set partial internal guard protocol extension";
const PYTHON =
  "False None True and as assert async await break class continue def del elif else except finally for from global if import in is lambda match " +
  "case nonlocal not or pass raise return self try while with yield";
const SHELL =
  "if then else elif fi for while until do done case esac in function return export local readonly declare set unset source exit echo cd sudo";
const SQL =
  "select from where insert into values update set delete create table drop alter add primary key foreign references join left right inner " +
  "outer full on as and or not null is in exists between like group by order having limit offset union all distinct case when then else end " +
  "index view with default unique begin commit rollback asc desc count int integer text varchar";
const RUBY =
  "begin break case class def do else elsif end ensure false for if in module next nil not or and redo rescue retry return self super then true " +
  "undef unless until when while yield require puts function local repeat";

const words = (text, fold) => ({ set: new Set(text.split(" ")), fold });
const string = String.raw`"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?`;
const C = { comment: String.raw`\/\/.*|\/\*[^]*?(?:\*\/|$)|^[ \t]*#[ \t]*\w+`, string: string + "|`(?:\\\\.|[^`\\\\])*`?", words: words(C_WORDS) };
const HASH = "#.*";
const FAMILIES = [
  [C,
    "c h cpp c++ cc cxx cuda java js javascript jsx mjs ts typescript tsx go golang rust rs cs csharp kotlin kt swift php scala dart json json5 " +
    "jsonc css scss less"],
  [{ comment: HASH, string: `[rbfu]{0,2}(?:"""[^]*?(?:"""|$)|'''[^]*?(?:'''|$))|[rbfu]{0,2}(?:${string})`, words: words(PYTHON) }, "py python python3"],
  [{ comment: String.raw`(?<=^|\s)#.*`, string: string + String.raw`|\$\w+|\$\{[^}\n]*\}`, words: words(SHELL) },
    "sh bash zsh shell console dockerfile docker make makefile"],
  [{ comment: HASH, string, words: words("true false null yes no on off True False") }, "yaml yml toml ini conf properties"],
  [{ comment: String.raw`--.*|\/\*[^]*?(?:\*\/|$)`, string, words: words(SQL, true) }, "sql sqlite postgresql mysql"],
  [{ comment: `${HASH}|--.*`, string, words: words(RUBY) }, "ruby rb lua"],
  [{ comment: "<!--[^]*?(?:-->|$)", string: `(?<==)(?:${string})`, word: String.raw`<\/?[\w:-]+|\/?>`, words: { has: () => true } }, "html xml svg vue"],
  [{ comment: String.raw`^(?:\+\+\+|---|@@).*`, string: String.raw`^\+.*`, word: "^-.*", words: { has: () => true } }, "diff patch"],
];

const rules = new Map();
for (const [family, names] of FAMILIES) {
  const { comment, string: text, word = String.raw`[A-Za-z_$][\w$]*`, words: known } = family;
  const rule = {
    has: known.has ?? ((w) => known.set.has(known.fold ? w.toLowerCase() : w)),
    pattern: new RegExp(String.raw`(?<comment>${comment})|(?<string>${text})|(?<number>\b\d[\w.]*)|(?<word>${word})`, "gm"),
  };
  for (const name of names.split(" ")) rules.set(name, rule);
}

// The code as nodes.
export function highlight(code, language) {
  const rule = rules.get(language.toLowerCase());
  if (!rule || code.length > MAX_TEXT) return [code];
  const out = [];
  let at = 0;
  for (const found of code.matchAll(rule.pattern)) {
    const { comment, string: text, number, word } = found.groups;
    const name = comment ? "co" : text ? "st" : number ? "nu" : rule.has(word) ? "kw" : code[found.index + word.length] === "(" ? "fn" : "";
    if (!name || !found[0]) continue;
    if (found.index > at) out.push(code.slice(at, found.index));
    out.push(el("span", { className: name, textContent: found[0] }));
    at = found.index + found[0].length;
  }
  if (at < code.length) out.push(code.slice(at));
  return out;
}
