// Elements, and the icons on buttons.

// An element; members of `set` are properties, or attributes where they have a dash or are `role`; children are nodes or texts.
export function el(tag, set = {}, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(set))
    if (name.includes("-") || name === "role" || name === "scope") e.setAttribute(name, value);
    else e[name] = value;
  e.append(...children.filter((c) => c !== null && c !== undefined && c !== false));
  return e;
}

export const button = (text, onclick, set = {}) => el("button", { type: "button", textContent: text, onclick, ...set });
export const byId = (id) => document.getElementById(id);

// ---- icons: strokes on a field of 24 × 24

const ICONS = {
  attach: "M20 11.5 12.4 19a4.6 4.6 0 0 1-6.5-6.5l8-8a3.1 3.1 0 0 1 4.4 4.4l-8 8a1.5 1.5 0 0 1-2.2-2.2l7.3-7.2",
  check: "M5 12.5 10 17.5 19.5 7",
  close: "M6 6 18 18M18 6 6 18",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
  dark: "M20 14.5A8.5 8.5 0 0 1 9.5 4 8.5 8.5 0 1 0 20 14.5z",
  edit: "M4 20v-4L16 4l4 4L8 20zM13.5 6.5l4 4",
  export: "M12 4v11M7.5 11 12 15.5 16.5 11M4 20h16",
  file: "M6 3h8l4 4v14H6zM14 3v4h4",
  import: "M12 16V5M7.5 9 12 4.5 16.5 9M4 20h16",
  info: "M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18zM12 11v5.5M12 7.5v.5",
  key: "M14.5 13.5a5 5 0 1 0-4-4L3 17v4h4l1.5-1.5V17H11l3-3M16 8v.1",
  light: "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM12 2v2.5M12 19.5V22M2 12h2.5M19.5 12H22M5 5l1.8 1.8M17.2 17.2 19 19M19 5l-1.8 1.8M6.8 17.2 5 19",
  menu: "M4 7h16M4 12h16M4 17h16",
  next: "M9.5 5.5 16 12l-6.5 6.5",
  plus: "M12 5v14M5 12h14",
  previous: "M14.5 5.5 8 12l6.5 6.5",
  retry: "M20 11A8 8 0 1 0 18 17M20 4.5V11h-6.5",
  send: "M12 20V5M5.5 11 12 4.5 18.5 11",
  settings: "M4 8h9M19 8h1M16 5.5a2.5 2.5 0 1 0 0 5 2.5 2.5 0 0 0 0-5zM4 16h1M11 16h9M8 13.5a2.5 2.5 0 1 0 0 5 2.5 2.5 0 0 0 0-5z",
  stop: "M7 7h10v10H7z",
  tokens: "M4 6h7v4H4zM14 6h6v4h-6zM4 14h5v4H4zM12 14h8v4h-8z",
  trash: "M4 7h16M9 7V4h6v3M6 7l1 13h10l1-13M10 11v5.5M14 11v5.5",
};

export function icon(name) {
  const ns = "http://www.w3.org/2000/svg", svg = document.createElementNS(ns, "svg"), path = document.createElementNS(ns, "path");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  path.setAttribute("d", ICONS[name]);
  svg.append(path);
  return svg;
}

// A button that shows an icon alone; `label` is its name, also to the pointer.
export const iconButton = (name, label, onclick, set = {}) =>
  el("button", { type: "button", className: "round", onclick, title: label, "aria-label": label, ...set }, icon(name));

// The icons that the document itself asks for: <button data-icon="NAME">.
export function setUpIcons() {
  for (const e of document.querySelectorAll("[data-icon]")) e.prepend(icon(e.dataset.icon));
}
