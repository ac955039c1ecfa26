/* The theme is the system's until the switch is used; the search reads the index of search.js. */
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
      var list = typeof SEARCH === "undefined" ? [] : SEARCH.find(input.value);
      list.forEach(function (section) {
        var link = document.createElement("a");
        var page = document.createElement("small");
        link.href = section[2];
        link.textContent = section[0];
        page.textContent = section[1];
        link.appendChild(page);
        found.appendChild(link);
      });
      if (!list.length && input.value.trim()) { found.textContent = "No section has these words."; }
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
