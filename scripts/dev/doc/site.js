/* The theme is the system's until the switch is used; headings come before texts in the search. */
(function () {
  "use strict";
  var root = document.documentElement;

  function kept(value) {
    try {
      if (value) { localStorage.setItem("theme", value); }
      return localStorage.getItem("theme");
    } catch (e) {
      return null;
    }
  }

  var dark = window.matchMedia("(prefers-color-scheme: dark)");
  function paint() { root.dataset.theme = kept() || (dark.matches ? "dark" : "light"); }
  paint();
  if (dark.addEventListener) { dark.addEventListener("change", paint); }

  /* how well an entry fits: 0 not at all, the heading itself best */
  function score(entry, words) {
    var heading = entry[0].toLowerCase();
    var text = (entry[1] + " " + entry[3]).toLowerCase();
    var sum = 0;
    for (var i = 0; i < words.length; i++) {
      var at = heading.indexOf(words[i]);
      if (at >= 0) {
        var whole = heading.split(/[^a-z0-9_]+/).indexOf(words[i]) >= 0;
        sum += heading === words[i] ? 100 : whole ? 50 : at === 0 ? 30 : 20;
      } else if (text.indexOf(words[i]) >= 0) {
        sum += 3;
      } else {
        return 0;
      }
    }
    return sum - Math.min(heading.length, 40) / 20;
  }

  function search(text) {
    var words = text.toLowerCase().split(/\s+/).filter(Boolean);
    if (!words.length || typeof SEARCH === "undefined") { return []; }
    return SEARCH.map(function (entry, i) { return [score(entry, words), i]; })
      .filter(function (pair) { return pair[0] > 0; })
      .sort(function (a, b) { return b[0] - a[0] || a[1] - b[1]; })
      .slice(0, 20)
      .map(function (pair) { return SEARCH[pair[1]]; });
  }

  document.addEventListener("DOMContentLoaded", function () {
    var input = document.getElementById("search");
    var found = document.getElementById("found");
    var nav = document.getElementById("nav");
    var here = nav.querySelector(".here");
    var chosen = -1;

    if (here && nav.offsetHeight > 0) {
      var aside = nav.parentNode;
      aside.scrollTop = Math.max(0, here.offsetTop - aside.clientHeight / 2);
    }

    document.getElementById("theme").onclick = function () {
      kept(root.dataset.theme === "dark" ? "light" : "dark");
      paint();
    };
    document.getElementById("menu").onclick = function () { nav.classList.toggle("open"); };

    function choose(i) {
      var links = found.querySelectorAll("a");
      if (!links.length) { return; }
      chosen = (i + links.length) % links.length;
      links.forEach(function (link, k) { link.classList.toggle("here", k === chosen); });
      links[chosen].scrollIntoView({ block: "nearest" });
    }

    input.oninput = function () {
      found.textContent = "";
      chosen = -1;
      var list = search(input.value);
      list.forEach(function (entry) {
        var link = document.createElement("a");
        var page = document.createElement("small");
        link.href = entry[2];
        link.textContent = entry[0];
        page.textContent = entry[1];
        link.appendChild(page);
        found.appendChild(link);
      });
      if (!list.length && input.value.trim()) { found.textContent = "Nothing is called so."; }
    };
    input.onkeydown = function (event) {
      if (event.key === "ArrowDown") { choose(chosen + 1); event.preventDefault(); }
      if (event.key === "ArrowUp") { choose(chosen - 1); event.preventDefault(); }
      if (event.key === "Escape") { input.value = ""; input.oninput(); input.blur(); }
      if (event.key === "Enter") {
        var links = found.querySelectorAll("a");
        if (links.length) { window.location.href = links[Math.max(chosen, 0)].href; }
      }
    };
    found.onclick = function () { input.value = ""; input.oninput(); nav.classList.remove("open"); };
    document.addEventListener("keydown", function (event) {
      if (event.key === "/" && !/^(INPUT|TEXTAREA)$/.test(document.activeElement.tagName)) {
        input.focus();
        event.preventDefault();
      }
    });
  });
})();
