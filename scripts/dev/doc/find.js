/* How a text is looked up in SEARCH; search.find of search.lua does the same. */
(function () {
  "use strict";
  /* what differs by its ending only is one word */
  function stem(word) {
    for (var i = 0; i < SEARCH.endings.length; i++) {
      var ending = SEARCH.endings[i][0], instead = SEARCH.endings[i][1];
      var at = word.length - ending.length;
      if (at + instead.length >= SEARCH.shortest && word.slice(at) === ending) {
        word = word.slice(0, at) + instead;
        break;
      }
    }
    return word.length > SEARCH.shortest ? word.replace(/e$/, "") : word;
  }

  function entry(table, key) {
    return Object.prototype.hasOwnProperty.call(table, key) ? table[key] : null;
  }

  function reach(best, key, tenths) {
    var pairs = entry(SEARCH.words, key) || [];
    for (var i = 0; i < pairs.length; i += 2) {
      best[pairs[i]] = Math.max(best[pairs[i]] || 0, pairs[i + 1] * tenths);
    }
  }

  /* section -> score of a word; last: it may be unfinished */
  function scores(word, last) {
    var best = {}, key = stem(word);
    reach(best, key, SEARCH.scale);
    (entry(SEARCH.same, word) || entry(SEARCH.same, key) || []).forEach(function (other) {
      reach(best, other, SEARCH.synonym);
    });
    if (last && !Object.keys(best).length) {
      Object.keys(SEARCH.words).forEach(function (other) {
        if (other.slice(0, word.length) === word) { reach(best, other, SEARCH.prefix); }
      });
    }
    return best;
  }

  /* the sections that answer a text, the best first: title, page, address */
  SEARCH.find = function (text) {
    var all = text.toLowerCase().replace(/_/g, "").match(/[a-z0-9]+/g) || [];
    var words = all.filter(function (word) { return SEARCH.stop.indexOf(word) < 0; });
    words = words.length ? words : all;
    var sum = {}, found = {};
    words.forEach(function (word, i) {
      var best = scores(word, i === words.length - 1);
      for (var n = 1; n <= 2 && n <= i; n++) {       /* joined with the words before it */
        var joined = scores(words.slice(i - n, i + 1).join(""));
        for (var section in joined) {
          best[section] = Math.max(best[section] || 0, joined[section] * (n + 1));
        }
      }
      for (var key in best) {
        sum[key] = (sum[key] || 0) + best[key];
        found[key] = (found[key] || 0) + 1;
      }
    });
    return Object.keys(sum)
      .map(function (key) { return [+key, sum[key] * found[key] * found[key]]; })
      .sort(function (a, b) { return b[1] - a[1] || a[0] - b[0]; })
      .slice(0, SEARCH.limit)
      .map(function (pair) { return SEARCH.sections[pair[0]]; });
  };
})();
