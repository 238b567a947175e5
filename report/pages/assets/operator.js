"use strict";
// The operator's page: asks for state.json every two seconds and shows it. What is done is asked for first. Text is set as text only.
(() => {
  const $ = id => document.getElementById(id);
  const token = location.pathname.split("/")[1];
  const make = (tag, text, looks) => { const e = document.createElement(tag); if (text !== undefined) e.textContent = text; if (looks) e.className = looks; return e; };
  const shown = {};  // study -> its card as JSON: an unchanged card is left alone

  async function act(what, table) {
    const answer = await fetch("do/" + what, {
      method: "POST", cache: "no-store", body: JSON.stringify(table),
      headers: { "Content-Type": "application/json", "X-Sottovoce-Token": token },
    });
    const said = await answer.json();
    if (!answer.ok) throw new Error(said.error || answer.status);
    return said;
  }

  function say(text, bad) {
    $("status").textContent = text;
    $("status").classList.toggle("warning", Boolean(bad));
    document.documentElement.dataset.said = text;
  }

  // Resolves to {why} when the person agreed, to null when not.
  function ask(title, words, text, yes, why) {
    const box = $("ask");
    $("ask-title").textContent = title;
    $("ask-words").textContent = words;
    $("ask-text").textContent = text;
    $("ask-text").hidden = !text;
    $("ask-yes").textContent = yes;
    $("ask-why").value = "";
    for (const e of [$("ask-why"), document.querySelector("label[for=ask-why]")]) e.hidden = !why;
    return new Promise(done => {
      box.onclose = () => done(box.returnValue === "yes" ? { why: $("ask-why").value } : null);
      box.returnValue = "no";
      box.showModal();
    });
  }

  async function press(study, action) {
    const words = action.text ? `Agree to exactly this, with the hash ${study.hash}?` : action.ask || "";
    let answer = {};
    if (action.text || action.ask || action.why) {
      answer = await ask(`${action.label.replace(" …", "")}: ${study.title}`, words, action.text ? study.text : "", action.text ? "Take part" : action.label.replace(" …", ""), action.why);
      if (answer === null) return;
    }
    try {
      say((await act(action.do, { study: study.id, hash: study.hash, why: answer.why || "" })).said);
    } catch (e) { say(e.message, true); }
    follow(true);
  }

  function grid(table) {
    const whole = make("table", undefined, "numbers stacked"), head = make("tr"), body = make("tbody"), top = make("thead");
    head.append(...table.head.map(h => { const e = make("th", h); e.scope = "col"; return e; }));
    top.append(head);
    body.append(...table.rows.map(r => { const tr = make("tr"); tr.append(...r.map((c, k) => { const e = make(k ? "td" : "th", c); if (k) e.dataset.label = table.head[k]; return e; })); return tr; }));
    whole.append(top, body);
    const around = make("div", undefined, "scroll tall"); around.tabIndex = 0; around.append(whole);
    return around;
  }

  function fold(name, inside, open) {
    const e = make("details"); e.open = open; e.dataset.name = name;
    e.append(make("summary", name), inside);
    return e;
  }

  function card(s, open) {
    const e = make("article", undefined, "study"); e.id = "study-" + s.id; e.dataset.state = s.state;
    const head = make("h3", s.title); head.append(make("span", s.state, s.undecided ? "badge loud" : "badge"));
    const facts = make("dl", undefined, "facts");
    for (const [name, value] of s.facts) facts.append(make("dt", name), make("dd", value));
    e.append(head, facts);
    const buttons = make("div", undefined, "buttons");
    for (const a of s.actions) { const b = make("button", a.label); b.dataset.do = a.do; b.onclick = () => press(s, a); buttons.append(b); }
    for (const d of s.documents) { const a = make("a", d.replace("-", " ")); a.href = `documents/${s.id}/${d}.html`; a.target = "_blank"; buttons.append(a); }
    if (buttons.children.length) e.append(buttons);
    if (s.table) e.append(fold("rounds", grid(s.table), open.rounds !== false));
    if (s.notes.length) {
      const list = make("ul", undefined, "notes");
      list.append(...s.notes.map(n => make("li", `${n.time}  ${n.text}`)));
      e.append(fold("what happened", list, open["what happened"] !== false));
    }
    if (s.text) e.append(fold(s.text_name, make("pre", s.text), Boolean(open[s.text_name])));
    return e;
  }

  function show(s) {
    $("tiles").replaceChildren(...s.tiles.map(([name, value, note]) => {
      const e = make("div"), dd = make("dd"); dd.append(make("span", value, "big"), make("small", note));
      e.append(make("dt", name), dd); return e;
    }));
    if ($("parties")) $("parties").replaceChildren(...s.parties.map(p => {
      const e = make("li", `${p.name}: ${p.words}`); e.dataset.state = p.missing ? "lost" : "answered"; return e;
    }));
    const wanted = s.studies.map(x => "study-" + x.id);
    for (const old of [...$("studies").children]) if (!wanted.includes(old.id)) old.remove();
    s.studies.forEach((x, k) => {
      const text = JSON.stringify(x), old = $("study-" + x.id);
      if (shown[x.id] === text && old) return;
      const open = {};
      if (old) for (const d of old.querySelectorAll("details")) open[d.dataset.name] = d.open;
      const fresh = card(x, open);
      if (old) old.replaceWith(fresh); else $("studies").insertBefore(fresh, $("studies").children[k] || null);
      shown[x.id] = text;
    });
    $("none").hidden = s.studies.length > 0;
    $("missing").hidden = s.alive;
    if (!s.alive) $("missing").textContent = `The program that serves does not run: nothing is asked for, answered or run. Start it: ${s.start}`;
    document.documentElement.dataset.ready = "yes";
  }

  let timer = 0;
  async function follow(now) {
    clearTimeout(timer);
    try {
      const answer = await fetch("state.json", { cache: "no-store" });
      if (!answer.ok) throw new Error(answer.status);
      const state = await answer.json();
      if (state.error) { $("missing").textContent = state.error; $("missing").hidden = false; } else show(state);
    } catch (e) {
      $("missing").textContent = "The page's program does not answer any more; this is the last that it said.";
      $("missing").hidden = false;
    }
    timer = setTimeout(follow, 2000);
  }

  if ($("propose")) $("propose").onsubmit = async event => {
    event.preventDefault();
    const text = $("text").value, enough = Number($("enough").value);
    say("looking at it …");
    try {
      const seen = await act("look", { text, enough });
      say("");
      if (await ask("Propose this study to every silo?", "", seen.text, "Propose", false) === null) return;
      say((await act("propose", { text, enough, hash: seen.hash })).said);
      $("text").value = "";
    } catch (e) { say(e.message, true); }
    follow(true);
  };
  follow();
})();
