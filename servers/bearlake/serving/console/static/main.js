// The frame of the console: navigation, login, light and dark, and which page an address shows.
import { html, render, useEffect, useLayoutEffect, useRef, useState } from "./lib.js";
import { basic, facts, loadFacts, logIn, useLogin } from "./api.js";
import { Choice, Dialog, LoginButton, Text, href } from "./parts.js";
import { Overview } from "./pages/overview.js";
import { Streams } from "./pages/streams.js";
import { Stream } from "./pages/stream.js";
import { Groups } from "./pages/groups.js";
import { Group } from "./pages/group.js";
import { ShareGroup, ShareGroups } from "./pages/sharegroups.js";
import { Subscription, Subscriptions } from "./pages/subscriptions.js";
import { Tables } from "./pages/tables.js";
import { TablePage } from "./pages/table.js";
import { Sql } from "./pages/sql.js";
import { Access } from "./pages/access.js";
import { Settings } from "./pages/settings.js";
import { Compaction } from "./pages/compaction.js";
import { Schemas, Subject } from "./pages/schemas.js";

const PLACES = [
  ["", "Overview"],
  ["streams", "Streams"],
  ["groups", "Groups"],
  ["schemas", "Schemas"],
  ["tables", "Tables"],
  ["sql", "SQL"],
  ["compaction", "Compaction"],
  ["access", "Access"],
  ["settings", "Settings"],
];
/** The place in the navigation of pages that are reached through another one. */
const WITHIN = { "share-groups": "groups", subscriptions: "groups" };

/** The words of the address after #/. */
function words() {
  return location.hash
    .replace(/^#\/?/, "")
    .split("?")[0]
    .split("/")
    .filter(Boolean)
    .map((word) => {
      try {
        return decodeURIComponent(word);
      } catch {
        return word; // an address that somebody made up
      }
    });
}

function Page({ place }) {
  const [section, name, part] = place;
  if (section === undefined) return html`<${Overview} />`;
  if (section === "streams" && name) return html`<${Stream} key=${name} name=${name} part=${part || "records"} />`;
  if (section === "streams") return html`<${Streams} />`;
  if (section === "groups" && name) return html`<${Group} key=${name} name=${name} />`;
  if (section === "groups") return html`<${Groups} />`;
  if (section === "share-groups" && name) return html`<${ShareGroup} key=${name} name=${name} />`;
  if (section === "share-groups") return html`<${ShareGroups} />`;
  if (section === "subscriptions" && part) return html`<${Subscription} key=${`${name}/${part}`} stream=${name} name=${part} />`;
  if (section === "subscriptions") return html`<${Subscriptions} />`;
  if (section === "tables" && part) return html`<${TablePage} key=${`${name}/${part}`} namespace=${name} name=${part} />`;
  if (section === "tables") return html`<${Tables} />`;
  if (section === "sql") return html`<${Sql} given=${name} />`;
  if (section === "access") return html`<${Access} />`;
  if (section === "settings") return html`<${Settings} />`;
  if (section === "schemas" && name) return html`<${Subject} key=${name} name=${name} />`;
  if (section === "schemas") return html`<${Schemas} />`;
  if (section === "compaction") return html`<${Compaction} />`;
  return html`<h1 tabindex="-1">No such page</h1><p><a href=${href()}>Back to the overview</a></p>`;
}

function Login({ close }) {
  const [kind, setKind] = useState("password");
  const [user, setUser] = useState("");
  const [secret, setSecret] = useState("");
  const { name } = useLogin();
  const done = (event) => {
    event.preventDefault();
    if (kind === "password") logIn(basic(user, secret), user);
    else logIn(`Bearer ${secret}`, "with a token");
    event.target.closest("dialog").close();
  };
  const out = (event) => {
    logIn("", "");
    event.target.closest("dialog").close();
  };
  return html`<${Dialog} title="Log in" close=${close}>
    <form onSubmit=${done}>
      <p class="hint">The login goes with each request to the servers, and stays in this tab until you reload it.</p>
      <${Choice} label="With" value=${kind} change=${setKind} options=${[["password", "user and password"], ["token", "a token"]]} />
      ${kind === "password" && html`<${Text} label="User" value=${user} change=${setUser} required autocomplete="username" />`}
      <${Text}
        label=${kind === "password" ? "Password" : "Token"}
        value=${secret} change=${setSecret} type="password" required autocomplete="current-password"
      />
      <div class="buttons">
        <button type="submit" class="main">Log in</button>
        ${name && html`<button type="button" onClick=${out}>Log out</button>`}
      </div>
    </form>
  <//>`;
}

const THEMES = { "": "System", light: "Light", dark: "Dark" };

function Theme() {
  const [theme, setTheme] = useState(localStorage.getItem("theme") || "");
  useEffect(() => {
    document.documentElement.dataset.theme = theme;
    localStorage.setItem("theme", theme);
  }, [theme]);
  return html`<${Choice} label="Colours" value=${theme} change=${setTheme} options=${Object.entries(THEMES)} />`;
}

function Console() {
  const [place, setPlace] = useState(words());
  const [isLoggingIn, setLoggingIn] = useState(false);
  const main = useRef(null);
  useLayoutEffect(() => {
    // With the first render, which has read the address: an effect would come later, and miss a move between both.
    const moved = () => {
      setPlace(words());
      window.scrollTo(0, 0);
    };
    const wanted = () => setLoggingIn(true);
    window.addEventListener("hashchange", moved);
    window.addEventListener("bearlake-login", wanted);
    return () => {
      window.removeEventListener("hashchange", moved);
      window.removeEventListener("bearlake-login", wanted);
    };
  }, []);
  useEffect(() => {
    // On a narrow screen, the navigation is a line that can be moved.
    document.querySelector('nav [aria-current="page"]')?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }, [place[0]]);
  const skip = (event) => {
    event.preventDefault();
    main.current.querySelector("h1")?.focus();
  };
  return html`
    <a class="skip" href="#main" onClick=${skip}>Skip to the content</a>
    <header class="side">
      <a class="brand" href=${href()}><img src="static/icon.svg" alt="" width="32" height="32" /> Bearlake</a>
      <nav aria-label="Pages">
        <ul>
          ${PLACES.map(
            ([section, title]) => html`<li>
              <a href=${href(...(section ? [section] : []))} aria-current=${(WITHIN[place[0]] || place[0] || "") === section ? "page" : null}>${title}</a>
            </li>`,
          )}
        </ul>
      </nav>
      <div class="foot">
        <${LoginButton} open=${() => setLoggingIn(true)} />
        <${Theme} />
        <p class="hint">${facts.version && `Bearlake ${facts.version}`}</p>
      </div>
    </header>
    <main id="main" ref=${main}><${Page} place=${place} /></main>
    ${isLoggingIn && html`<${Login} close=${() => setLoggingIn(false)} />`}
  `;
}

document.documentElement.dataset.theme = localStorage.getItem("theme") || "";
await loadFacts();
const app = document.getElementById("app");
app.replaceChildren();
render(html`<${Console} />`, app);
