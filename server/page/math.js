// Formulas: the LaTeX that models write, as MathML. What is not known here is not guessed at: the formula is shown as it was written.
import { el } from "./dom.js";

const MAX_TEXT = 4000, MAX_DEPTH = 60;

// An element of MathML; classes are those of chat.css.
function m(tag, children = [], set = {}) {
  const e = document.createElementNS("http://www.w3.org/1998/Math/MathML", tag);
  for (const [name, value] of Object.entries(set)) e.setAttribute(name, value);
  e.append(...[children].flat());
  return e;
}

// ---- what commands mean

const table = (text) => new Map(text.split(/\s+/).map((pair) => pair.split("=", 2)));

const LETTERS = table(
  "alpha=α beta=β gamma=γ delta=δ epsilon=ϵ varepsilon=ε zeta=ζ eta=η theta=θ vartheta=ϑ iota=ι kappa=κ lambda=λ mu=μ nu=ν xi=ξ pi=π varpi=ϖ " +
  "rho=ρ varrho=ϱ sigma=σ varsigma=ς tau=τ upsilon=υ phi=ϕ varphi=φ chi=χ psi=ψ omega=ω " +
  "Gamma=Γ Delta=Δ Theta=Θ Lambda=Λ Xi=Ξ Pi=Π Sigma=Σ Upsilon=Υ Phi=Φ Psi=Ψ Omega=Ω infty=∞ hbar=ℏ ell=ℓ Re=ℜ Im=ℑ aleph=ℵ emptyset=∅ " +
  "varnothing=∅ partial=∂ nabla=∇ imath=ı jmath=ȷ top=⊤ bot=⊥ angle=∠ degree=° prime=′ " +
  "ldots=… dots=… cdots=⋯ vdots=⋮ ddots=⋱ dotsc=… dotsb=⋯ square=□ Box=□ checkmark=✓ dagger=† ddagger=‡ triangle=△ star=⋆ clubsuit=♣ " +
  "diamondsuit=♢ heartsuit=♡ spadesuit=♠ #=# $=$ %=% &=& _=_");
const OPERATORS = table(
  "times=× cdot=⋅ div=÷ pm=± mp=∓ ast=∗ circ=∘ bullet=∙ oplus=⊕ ominus=⊖ otimes=⊗ odot=⊙ cap=∩ cup=∪ setminus=∖ wedge=∧ land=∧ vee=∨ lor=∨ " +
  "neg=¬ lnot=¬ forall=∀ exists=∃ nexists=∄ " +
  "le=≤ leq=≤ leqslant=⩽ ge=≥ geq=≥ geqslant=⩾ ne=≠ neq=≠ ll=≪ gg=≫ approx=≈ equiv=≡ cong=≅ sim=∼ simeq=≃ propto=∝ prec=≺ succ=≻ preceq=⪯ " +
  "succeq=⪰ mid=∣ nmid=∤ parallel=∥ perp=⟂ in=∈ notin=∉ ni=∋ subset=⊂ supset=⊃ subseteq=⊆ supseteq=⊇ subsetneq=⊊ models=⊨ vdash=⊢ coloneqq=≔ " +
  "asymp=≍ doteq=≐ lesssim=≲ gtrsim=≳ triangleq=≜ " +
  "to=→ rightarrow=→ leftarrow=← gets=← leftrightarrow=↔ Rightarrow=⇒ implies=⟹ Leftarrow=⇐ impliedby=⟸ Leftrightarrow=⇔ iff=⟺ mapsto=↦ " +
  "longrightarrow=⟶ longleftarrow=⟵ Longrightarrow=⟹ longmapsto=⟼ uparrow=↑ downarrow=↓ updownarrow=↕ Uparrow=⇑ Downarrow=⇓ hookrightarrow=↪ " +
  "rightharpoonup=⇀ rightleftharpoons=⇌ nearrow=↗ searrow=↘ leadsto=⇝ therefore=∴ because=∵ colon=: lt=< gt=> " +
  "lceil=⌈ rceil=⌉ lfloor=⌊ rfloor=⌋ langle=⟨ rangle=⟩ lvert=| rvert=| lVert=‖ rVert=‖ vert=| Vert=‖ lbrace={ rbrace=} lbrack=[ rbrack=] {={ " +
  "}=} |=‖ backslash=∖");
const LARGE = table("sum=∑ prod=∏ coprod=∐ bigcup=⋃ bigcap=⋂ bigoplus=⨁ bigotimes=⨂ bigvee=⋁ bigwedge=⋀ bigsqcup=⨆ int=∫ iint=∬ iiint=∭ oint=∮");
const NAMES = new Set((
  "arccos arcsin arctan arg cos cosh cot coth csc deg dim exp gcd hom ker lg ln log sec sin sinh tan tanh lim limsup liminf max min sup inf det " +
  "Pr argmax argmin").split(" "));
const LIMITS = new Set("lim limsup liminf max min sup inf det Pr argmax argmin".split(" "));
const ACCENTS = table(
  "hat=^ widehat=^ tilde=~ widetilde=~ bar=¯ overline=¯ vec=→ overrightarrow=→ overleftarrow=← dot=˙ ddot=¨ check=ˇ breve=˘ acute=´ grave=` " +
  "mathring=˚ overbrace=⏞");
const UNDER = table("underline=_ underbrace=⏟");
// in 18ths of an em
const SPACES = new Map([[",", 3], [":", 4], [";", 5], ["!", -3], [" ", 4], [">", 4], ["quad", 18], ["qquad", 36], ["enspace", 9], ["thinspace", 3]]);
const SKIPPED = new Set("displaystyle textstyle scriptstyle limits nolimits nonumber notag left. mathstrut relax".split(" "));
const SIZES = {
  big: 1.2, bigl: 1.2, bigr: 1.2, bigm: 1.2, Big: 1.6, Bigl: 1.6, Bigr: 1.6, bigg: 2.1, biggl: 2.1, biggr: 2.1, Bigg: 2.7, Biggl: 2.7, Biggr: 2.7,
};
const TEXTS = new Set("text textrm textnormal mbox textit textbf textsf texttt operatorname operatorname* mathop".split(" "));
const FENCES = {
  pmatrix: "()", bmatrix: "[]", Bmatrix: "{}", vmatrix: "||", Vmatrix: "‖‖", matrix: "  ", smallmatrix: "  ", cases: "{ ", rcases: " }", array: "  ",
};
const ALIGNED = new Set("aligned align align* alignat split eqnarray eqnarray*".split(" "));
const STACKED = new Set("gather gather* gathered equation equation* multline multline*".split(" "));

// Letters of a mathematical alphabet: where its A, a and 0 lie, and those that Unicode had before.
const ALPHABETS = {
  mathbb: [0x1d538, 0x1d552, 0x1d7d8, "C=ℂ H=ℍ N=ℕ P=ℙ Q=ℚ R=ℝ Z=ℤ"], mathbf: [0x1d400, 0x1d41a, 0x1d7ce],
  boldsymbol: [0x1d468, 0x1d482, 0x1d7ce], bm: [0x1d468, 0x1d482, 0x1d7ce],
  mathcal: [0x1d49c, 0x1d4b6, 0, "B=ℬ E=ℰ F=ℱ H=ℋ I=ℐ L=ℒ M=ℳ R=ℛ e=ℯ g=ℊ o=ℴ"],
  mathscr: [0x1d49c, 0x1d4b6, 0, "B=ℬ E=ℰ F=ℱ H=ℋ I=ℐ L=ℒ M=ℳ R=ℛ e=ℯ g=ℊ o=ℴ"],
  mathfrak: [0x1d504, 0x1d51e, 0, "C=ℭ H=ℌ I=ℑ R=ℜ Z=ℨ"], mathsf: [0x1d5a0, 0x1d5ba, 0x1d7e2],
  mathtt: [0x1d670, 0x1d68a, 0x1d7f6], mathrm: null, mathit: null, mathnormal: null,
};

function inAlphabet(name, text) {
  const [upper, lower, digit, before = ""] = ALPHABETS[name], known = table(before);
  return [...text].map((c) => {
    const from = /[A-Z]/.test(c) ? [upper, "A"] : /[a-z]/.test(c) ? [lower, "a"] : /\d/.test(c) ? [digit, "0"] : [0];
    return known.get(c) ?? (from[0] ? String.fromCodePoint(from[0] + c.charCodeAt(0) - from[1].charCodeAt(0)) : c);
  }).join("");
}

// ---- reading

function read(tex, block) {
  let at = 0, depth = 0;
  const fail = (what) => {
    throw new SyntaxError(what);
  };
  const skip = () => (at += /^(?:\s|%.*)*/.exec(tex.slice(at))[0].length);

  // The next token, which stays: a command, a number, or a character; "" at the end.
  function peek() {
    skip();
    return /^(?:\\(?:[a-zA-Z]+|[^])|\d+(?:\.\d+)?|[^])/u.exec(tex.slice(at, at + 60))?.[0] ?? "";
  }
  function next() {
    const token = peek();
    at += token.length;
    return token;
  }
  const expect = (token) => next() === token || fail("no " + token);

  // What is between braces, as it was written.
  function raw() {
    expect("{");
    const from = at;
    for (let open = 1; open; at++) {
      if (at >= tex.length) fail("no }");
      if (tex[at] === "\\") at++;
      else open += { "{": 1, "}": -1 }[tex[at]] ?? 0;
    }
    return tex.slice(from, at - 1);
  }
  function option() {
    if (peek() !== "[") return null;
    next();
    return row("]");
  }
  function argument() {
    if (peek() !== "{") return atom();
    next();
    const inside = row("}");
    return inside.children.length === 1 ? inside.firstChild : inside;
  }

  function delimiter() {
    const token = next(), name = token.slice(1);
    if (token[0] !== "\\") return token === "." ? "" : token;
    return OPERATORS.get(name) ?? fail(token);
  }

  function cells(name) {
    const rows = [[m("mtd", rowOf(cellEnds))]];
    for (;;) {
      const end = next();
      if (end === "&") rows.at(-1).push(m("mtd", rowOf(cellEnds)));
      else if (end === "\\\\") {
        if (tex[at] === "[") at = tex.indexOf("]", at) + 1 || fail("no ]");
        rows.push([m("mtd", rowOf(cellEnds))]);
      } else break; // \end
    }
    if (raw() !== name) fail("no \\end{" + name + "}");
    if (rows.at(-1).length === 1 && !rows.at(-1)[0].firstChild.childNodes.length) rows.pop();
    return rows;
  }
  const cellEnds = (token) => ["&", "\\\\", "\\end"].includes(token);

  function environment() {
    const name = raw(), aligned = ALIGNED.has(name);
    if (!aligned && !STACKED.has(name) && !Object.hasOwn(FENCES, name)) fail(name);
    let places = "";
    if (["array", "alignat"].includes(name)) places = raw().replace(/[^lcr]/g, "");
    const rows = cells(name), left = { l: "left", r: "right" };
    rows.forEach((r) => r.forEach((cell, i) => {
      const side = aligned ? (i % 2 ? "left" : "right") : name === "cases" ? "left" : left[places[i]];
      if (side) cell.setAttribute("class", side + (aligned && i % 2 ? " tight" : ""));
    }));
    const grid = m("mtable", rows.map((r) => m("mtr", r)), aligned || STACKED.has(name) ? { displaystyle: "true" } : {});
    const [open, close] = FENCES[name] ?? "  ";
    const fence = (c) => (c.trim() ? [m("mo", c, { stretchy: "true", fence: "true" })] : []);
    return m("mrow", [...fence(open), grid, ...fence(close)]);
  }

  function fenced() {
    const open = delimiter(), parts = [];
    for (;;) {
      parts.push(rowOf((token) => ["\\right", "\\middle"].includes(token)));
      if (next() === "\\right") break;
      parts.push(m("mo", delimiter(), { stretchy: "true", fence: "true" }));
    }
    const close = delimiter(), fence = (c) => (c ? [m("mo", c, { stretchy: "true", fence: "true" })] : []);
    return m("mrow", [...fence(open), ...parts, ...fence(close)]);
  }

  function command(name) {
    if (LETTERS.has(name)) return m("mi", LETTERS.get(name), /^[A-Z…⋯∞]/.test(name + LETTERS.get(name)) ? { mathvariant: "normal" } : {});
    if (OPERATORS.has(name)) return m("mo", OPERATORS.get(name), { stretchy: "false" });
    if (LARGE.has(name)) return m("mo", LARGE.get(name), { largeop: "true", movablelimits: "true" });
    if (LIMITS.has(name)) return m("mo", name.replace(/^(lim|arg)(?=[ims]..)/, "$1 "), { movablelimits: "true", lspace: "0.1em", rspace: "0.17em" });
    if (NAMES.has(name)) return m("mi", name);
    if (SPACES.has(name)) return m("mspace", [], { width: SPACES.get(name) / 18 + "em" });
    if (SKIPPED.has(name)) return m("mrow");
    if (TEXTS.has(name)) {
      if (name === "operatorname" && tex[at] === "*") at++;
      if (/op/.test(name)) return m("mi", raw().replace(/\\[,;: ]/g, " "), { mathvariant: "normal" });
      return m("mtext", text(raw()), name === "textbf" ? { class: "bold" } : {});
    }
    if (ACCENTS.has(name)) return m("mover", [argument(), m("mo", ACCENTS.get(name), { stretchy: String(/^(wide|over)/.test(name)) })], { accent: "true" });
    if (UNDER.has(name)) return m("munder", [argument(), m("mo", UNDER.get(name), { stretchy: "true" })], { accentunder: "true" });
    if (Object.hasOwn(SIZES, name)) return m("mo", delimiter(), { stretchy: "true", minsize: SIZES[name] + "em", maxsize: SIZES[name] + "em" });
    if (Object.hasOwn(ALPHABETS, name)) return alphabet(name);
    switch (name) {
      case "frac": case "dfrac": case "tfrac": case "cfrac": return m("mfrac", [argument(), argument()], name === "dfrac" ? { displaystyle: "true" } : {});
      case "binom": case "dbinom": case "tbinom":
        return m("mrow", [m("mo", "("), m("mfrac", [argument(), argument()], { linethickness: "0" }), m("mo", ")")]);
      case "sqrt": {
        const degree = option();
        return degree ? m("mroot", [argument(), degree]) : m("msqrt", argument());
      }
      case "overset": case "stackrel": case "underset": {
        const small = argument();
        return m(name === "underset" ? "munder" : "mover", [argument(), small]);
      }
      case "xrightarrow": case "xleftarrow":
        return m("mover", [m("mo", name[1] === "r" ? "→" : "←", { stretchy: "true" }), m("mpadded", argument(), { lspace: "0.4em", width: "+0.8em" })]);
      case "boxed": case "fbox": return m("mrow", argument(), { class: "boxed" });
      case "left": return fenced();
      case "begin": return environment();
      case "not": return m("mo", argument().textContent + "\u0338");
      case "pmod": return m("mrow", [m("mspace", [], { width: "1em" }), m("mo", "("), m("mo", "mod", { rspace: "0.3em" }), argument(), m("mo", ")")]);
      case "bmod": case "mod": return m("mo", "mod", { lspace: "0.3em", rspace: "0.3em" });
      case "tag": return m("mtext", "\u2003(" + text(raw()) + ")");
      case "phantom": return m("mphantom", argument());
      case "color": return raw(), m("mrow");
      default: return fail("\\" + name);
    }
  }

  const text = (words) => (/\\[a-zA-Z]|\$/.test(words) ? fail(words) : words.replace(/\\(.)/g, "$1").replace(/^ | $/g, "\u00a0"));

  // Letters in another alphabet; names of several letters stand upright.
  function alphabet(name) {
    if (peek() !== "{") return restyle(name, atom());
    next();
    const inside = row("}");
    const letters = [...inside.children].every((e) => e.localName === "mi" && !e.children.length);
    return ALPHABETS[name] ? restyle(name, inside) : name === "mathrm" && letters ? m("mi", inside.textContent, { mathvariant: "normal" }) : inside;
  }
  function restyle(name, element) {
    if (ALPHABETS[name])
      for (const leaf of element.children.length ? element.querySelectorAll("mi, mn") : [element]) {
        leaf.textContent = inAlphabet(name, leaf.textContent);
        leaf.setAttribute("mathvariant", "normal");
      }
    return element;
  }

  function atom() {
    if (++depth > MAX_DEPTH) fail("too deep");
    const token = next();
    let out;
    if (!token || "}^_&".includes(token)) fail("misplaced " + token);
    else if (token === "{") out = row("}");
    else if (token[0] === "\\") out = command(token.slice(1));
    else if (/^\d/.test(token)) out = m("mn", token);
    else if (/^\p{L}$/u.test(token)) out = m("mi", token);
    else if (token === "~") out = m("mspace", [], { width: "0.25em" });
    else out = m("mo", token === "-" ? "−" : token === "*" ? "∗" : token, /[()[\]|/]/.test(token) ? { stretchy: "false" } : {});
    depth--;
    return out;
  }

  function withScripts(base) {
    let sub = null, sup = null;
    for (;;) {
      const token = peek();
      if (token === "_" && !sub) next(), (sub = argument());
      else if (token === "^" && !sup) next(), (sup = argument());
      else if (token === "'" && !sup) {
        let primes = "";
        while (peek() === "'") next(), (primes += "′");
        sup = m("mo", primes);
        if (peek() === "^") next(), (sup = m("mrow", [sup, argument()]));
      } else if (["\\limits", "\\nolimits"].includes(token)) next();
      else break;
    }
    if (!sub && !sup) return base;
    const name = base.textContent, over = base.getAttribute("movablelimits") ? !/[∫∬∭∮]/.test(name) : /^m(under|over)$/.test(base.localName) && /[⏞⏟]/.test(name);
    const tag = over ? { 1: "munder", 2: "mover", 3: "munderover" } : { 1: "msub", 2: "msup", 3: "msubsup" };
    return m(tag[(sub ? 1 : 0) + (sup ? 2 : 0)], [base, sub, sup].filter(Boolean));
  }

  // All to a token that ends it, which stays.
  function rowOf(ends) {
    const parts = [];
    while (!ends(peek())) parts.push(withScripts(atom()));
    return m("mrow", parts);
  }
  function row(end) {
    const inside = rowOf((token) => token === end);
    next();
    return inside;
  }

  const all = rowOf((token) => token === "");
  return m("math", all, block ? { display: "block" } : {});
}

// A formula as an element. `written`: what is shown where it cannot be read.
export function math(tex, block, written) {
  try {
    if (tex.length <= MAX_TEXT) return read(tex, block);
  } catch {
    // as it was written
  }
  return el("code", { className: "tex", textContent: written.trim() });
}
