// What both views share: which one is shown, light and dark, the dialog for keys.
import { getKeys, hasKeys, load, onKeyWanted, save, setKeys } from "./api.js";
import { openChat } from "./chat.js";
import { byId, icon, setUpIcons } from "./dom.js";
import { openEngine, watchEngine } from "./engine.js";

setUpIcons();

// ---- light and dark: the system's, until the switch is used

const dark = matchMedia("(prefers-color-scheme: dark)");

function showTheme() {
  const choice = load("theme", null), isDark = choice ? choice === "dark" : dark.matches;
  document.documentElement.className = choice ?? "";
  byId("theme").replaceChildren(icon(isDark ? "light" : "dark")); // where it leads
  byId("theme").ariaPressed = String(isDark);
  dispatchEvent(new Event("theme"));
}
byId("theme").onclick = () => {
  save("theme", byId("theme").ariaPressed === "true" ? "light" : "dark");
  showTheme();
};
dark.addEventListener("change", showTheme);
showTheme();

// ---- keys

const dialog = byId("key-dialog");

function askForKey(why) {
  const keys = getKeys();
  byId("key-why").textContent = why ?? "It is sent to this server only.";
  byId("key").value = keys.key;
  byId("admin-key").value = keys.admin;
  byId("admin-box").open = !!keys.admin;
  byId("keep-key").checked = load("keys", null) !== null;
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.onclose = () => {
      const use = dialog.returnValue === "use";
      if (use) setKeys(byId("key").value.trim(), byId("admin-key").value.trim(), byId("keep-key").checked);
      resolve(use);
    };
  });
}
onKeyWanted(askForKey);
byId("key-button").onclick = () => askForKey(null);
const showKeyButton = () => (byId("key-button").hidden = !hasKeys());
for (const name of ["keys", "keywanted"]) addEventListener(name, showKeyButton);
showKeyButton();

// ---- views

function showView() {
  const name = location.hash === "#engine" ? "engine" : "chat";
  for (const view of ["chat", "engine"]) {
    byId(view).hidden = view !== name;
    if (view === name) byId("nav-" + view).setAttribute("aria-current", "page");
    else byId("nav-" + view).removeAttribute("aria-current");
  }
  for (const id of ["menu", "settings-button"]) byId(id).hidden = name !== "chat";
  document.title = name === "chat" ? "Quire" : "Quire: engine";
  watchEngine(name === "engine");
}
addEventListener("hashchange", () => location.hash !== "#main" && showView());

openEngine();
showView();
openChat();
