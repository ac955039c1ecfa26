-- The pages as HTML: every link leads somewhere, everything public is described, the script works.

package.path = "scripts/dev/?.lua;" .. package.path

local shell = require "spec.support.shell"

local folder

local function read(path)
  local file = io.open(path, "rb")
  local text = file and file:read("*a")
  if file then
    file:close()
  end
  return text
end

local function lines(command)
  local pipe = io.popen(command)
  local list = {}
  for line in pipe:lines() do
    list[#list + 1] = line
  end
  pipe:close()
  return list
end

-- file -> text; file -> set of ids
local texts, ids = {}, {}

setup(function()
  folder = os.tmpname()
  local output, status = shell.run(("rm -f %s && %s scripts/dev/doc.lua %s")
    :format(folder, shell.program, folder))
  assert(status == 0, output)
  for _, name in ipairs(lines("cd " .. folder .. " && find * -type f")) do
    texts[name], ids[name] = read(folder .. "/" .. name), {}
    for id in texts[name]:gmatch(' id="([^"]*)"') do
      assert.is_nil(ids[name][id], name .. " has two of " .. id)
      ids[name][id] = true
    end
  end
end)

teardown(function()
  shell.run("rm -rf " .. folder)
end)

-- Returns what is wrong with an address on a page, or nil.
local function dead(page, address)
  local file, id = address:match("^([^#]*)#?(.*)$")
  file = file == "" and page or file
  if address:find("^https?:") or address:find("^data:") then
    return nil
  end
  return not texts[file] and "no file" or id ~= "" and not ids[file][id] and "no such place" or nil
end

describe("scripts/dev/doc.lua", function()
  it("writes no dead link", function()
    local count, bad = 0, {}
    for page, text in pairs(texts) do
      for address in (page:find("%.html$") and text or ""):gmatch('[hs]re?[fc]="([^"]*)"') do
        local what = dead(page, address)
        count = count + 1
        bad[#bad + 1] = what and ("%s: %s: %s"):format(page, address, what)
      end
    end
    assert.equal("", table.concat(bad, "\n"))
    assert.is_true(count > 5000)
  end)

  it("writes every page with a sidebar in which it is marked, and no mark of its own", function()
    for page, text in pairs(texts) do
      if page:find("%.html$") then
        assert.is_falsy(text:find("[\1\2\3]"), page)
        local mark = 'class="here" aria-current="page" href="' .. page .. '"'
        assert.is_truthy(text:find(mark, 1, true), page)
        for _, name in ipairs{ "index", "first_hour", "reference_module", "operators" } do
          assert.is_truthy(text:find('href="' .. name .. '.html"', 1, true), page .. name)
        end
      end
    end
  end)

  it("has every operator, class and function, and what options mean", function()
    local all = {}
    for page, text in pairs(texts) do
      all[#all + 1] = page:find("%.html$") and text or nil
    end
    all = table.concat(all)
    local op = require("tycho").op
    for _, name in ipairs(op.list()) do
      local there = op.info(name).added or all:find('">' .. name .. "<a", 1, true)
      assert.is_truthy(there, name)
    end
    for _, id in ipairs{ "Module.fit", "NDArray.copyto", "Executor.forward", "Symbol.simple_bind",
        "ty.io.NDArrayIter", "ty.optimizer.Adam", "ty.metric.F1", "ty.init.Xavier",
        "ty.rnn.LSTMCell", "KVStore.push", "KVStore.init", "ty.lr_scheduler.CosineScheduler" } do
      assert.is_truthy(all:find('id="' .. id .. '"', 1, true), id)
    end
    local module = texts["reference_module.html"]
    assert.is_truthy(module:find("<code>clip_global_norm</code></td><td>a number", 1, true))
    assert.is_truthy(all:find("<code>label_shape</code></td><td>a shape (a list of sizes)</td>"
      .. "<td><code>{1}</code></td>", 1, true))
    -- of functions without a comment: that of their operator, of ty.nd, or of a tag
    for id, text in pairs{ ["ty.random.gamma"] = "mean alpha times beta",
        ["ty.sym.arange"] = "before <code>stop", ["ty.context.gpu"] = "context of a GPU",
        ["ty.nd.maximum"] = "larger", ["Symbol.tojson"] = "byte" } do
      local found = all:match('id="' .. id:gsub("%.", "%%.") .. '">.-</section>')
      assert.is_truthy(found:find(text, 1, true), found)
    end
    assert.is_falsy(all:find("not for users", 1, true))
    assert.is_falsy(all:find('id="[%w_.]*[.:]_'))
  end)

  -- Returns the call above each entry of the reference, by name.
  local function calls()
    local list = {}
    for page, text in pairs(texts) do
      for call in text:gmatch(page:find("^reference_") and '<pre class="call">([^<]*)</pre>'
          or "^$^") do
        call = call:gsub("&quot;", '"')
        list[call:match("^[^%({]*")] = call
      end
    end
    return list
  end

  it("shows the arguments of methods without an option table", function()
    local all = calls()
    for _, call in ipairs{ "Module:forward_backward(data_batch)", "NDArray:copyto(other)",
        "Optimizer:update(index, weight, grad, state)", "Optimizer:create_state(index, weight)",
        "CustomOp:assign(dst, req, src)", "Module:update_metric(eval_metric, labels, [pre_sliced])",
        "EvalMetric:update(labels, preds)", "Augmenter:apply(x)", "NDArray:get(...)",
        "DataIter:set_state(state)", "DataDesc.get_batch_axis([layout])", "Module:update()" } do
      assert.equal(call, all[call:match("^[^%(]*")])
    end
  end)

  -- each function of the library, asked for itself
  it("shows no call without arguments of a function that has some", function()
    local entries = require "doc.entries"
    local count = 0
    for _, page in ipairs(entries.pages()) do
      for _, item in ipairs(page.entries) do
        local f = item.kind ~= "class" and item.f
        local info = f and debug.getinfo(f, "u")
        local method = item.title:find(":", 1, true) and 1 or 0
        if f and info.nparams > method and debug.getlocal(f, method + 1):find("%w") then
          assert.is_falsy(item.call:find("%(%)$"), item.call)
          count = count + 1
        end
      end
    end
    assert.is_true(count > 100, count)
  end)

  it("shows no address of a function and no bounds of a C integer", function()
    for page, text in pairs(texts) do
      if page:find("%.html$") then
        assert.is_falsy(text:match("[%w ]+: 0x%x%x+"), page)
        assert.is_falsy(text:find("-2147483648", 1, true), page)
        assert.is_falsy(text:find("%[%-?%d*,2147483647%]"), page)
      end
    end
    assert.is_truthy(calls()["ty.rnn.ConvGRUCell"]:find("[activation]", 1, true))
  end)

  it("says something of the options, of all of those that are used most", function()
    local output, status = shell.run(shell.program .. " scripts/dev/doc.lua --silent")
    assert.equal(0, status)
    local _, count = output:gsub("[^\n]+", "")
    assert.is_true(count <= 20, output)
    for _, name in ipairs{ "Module:", "ty.mod.Module", "ty.io.NDArrayIter", "ty.io.ImageRecordIter",
        "ty.optimizer.", "ty.lr_scheduler.", "ty.init.", "ty.metric.", "Symbol:", "Executor:" } do
      assert.is_falsy(("\n" .. output):find("\n" .. name, 1, true), output)
    end
  end)

  it("shows every script in the gallery, with the picture that its command draws", function()
    local page = texts["gallery.html"]
    for _, path in ipairs(lines("ls scripts/*.lua")) do
      assert.is_truthy(page:find(path, 1, true), path)
    end
    local count = 0
    for name in read("doc/gallery.md"):gmatch("\nbuild/tycho scripts/([%w_]+)%.lua %-%-plot") do
      local picture = read("doc/gallery/" .. name .. ".svg") or ""
      assert.is_truthy(picture:find(">" .. name .. "</text>", 1, true), name)
      assert.is_truthy(page:find('src="gallery/' .. name .. '.svg"', 1, true), name)
      count = count + 1
    end
    assert.is_true(count >= 9)
  end)

  it("links guides and the reference both ways", function()
    assert.is_truthy(texts["first_hour.html"]:find('href="reference_module.html#', 1, true))
    assert.is_truthy(texts["first_hour.html"]:find('<a href="operators_layers.html#fullyconnected">'
      .. "ty.sym.FullyConnected</a>{", 1, true))
    assert.is_truthy(texts["reference_module.html"]:find('In guides: <a href="first_hour.html">', 1,
      true))
  end)

  it("lays options out for narrow screens, those of operators too", function()
    local _, tables = texts["operators_layers.html"]:gsub('<table class="options">', "")
    assert.is_true(tables > 10)
    assert.is_truthy(texts["style.css"]:find("%.options tr { display: flex"))
    assert.is_truthy(texts["style.css"]:find("td code { overflow-wrap: anywhere }", 1, true))
  end)

  it("indexes headings and the text below them", function()
    local index, count = texts["search.js"], 0
    for title, page, id in index:gmatch('\n%["([^"]*)","[^"]*","([%w_]+%.html)#([^"]*)"%]') do
      assert.is_truthy(ids[page] and ids[page][id], page .. "#" .. id .. " " .. title)
      count = count + 1
    end
    assert.is_true(count > 800)
    assert.is_truthy(index:find('["FullyConnected","Layers and losses",', 1, true))
    assert.is_truthy(index:find('"reference_module.html#Module.fit"', 1, true))
  end)

  it("writes UTF-8 only", function()
    for name, text in pairs(texts) do
      local rest = text:gsub("[%z\1-\127]+", ""):gsub("[\194-\223][\128-\191]", "")
        :gsub("[\224-\239][\128-\191][\128-\191]", "")
        :gsub("[\240-\244][\128-\191][\128-\191][\128-\191]", "")
      assert.equal("", name:find("%.png$") and "" or rest, name)
    end
  end)

  it("writes the same pages again", function()
    local other = os.tmpname()
    local output, status = shell.run(("rm -f %s && %s scripts/dev/doc.lua %s && diff -rq %s %s; \z
      s=$?; rm -r %s; (exit $s)"):format(other, shell.program, other, folder, other, other))
    assert.equal("", output)
    assert.equal(0, status)
  end)

  it("shows its help without making a folder", function()
    local output, status = shell.run(([[d=$(mktemp -d); printf '#!/bin/sh\necho called\n' > $d/mkdir
      chmod +x $d/mkdir; PATH=$d:$PATH %s scripts/dev/doc.lua --help; s=$?; rm -r $d; (exit $s)]])
      :format(shell.program))
    assert.equal(0, status)
    assert.is_truthy(output:find("usage: build/tycho scripts/dev/doc.lua", 1, true))
    assert.is_falsy(output:find("called", 1, true))
  end)
end)

-- Returns whether the brackets of JavaScript match, without its texts and comments.
local function balance(code)
  code = code:gsub("\\.", ""):gsub("/%*.-%*/", ""):gsub('"[^"\n]*"', '""')
    :gsub("%([^()\n]*/[^\n/]*/", "(")
  local stack, fits = {}, { [")"] = "(", ["]"] = "[", ["}"] = "{" }
  for c in code:gmatch("[%(%)%[%]{}]") do
    if fits[c] then
      if table.remove(stack) ~= fits[c] then
        return false
      end
    else
      stack[#stack + 1] = c
    end
  end
  return #stack == 0
end

describe("the pages' script", function()
  it("has brackets that fit", function()
    assert.is_true(balance(texts["site.js"]))
    assert.is_true(balance(texts["search.js"]))
    assert.is_false(balance(texts["site.js"]:gsub("}%);%s*}%)%(%);%s*$", "")))
  end)

  local function browse(page, html, options)
    local browser = lines("command -v chromium chromium-browser google-chrome 2>/dev/null")[1]
    if not browser then
      pending("no Chromium on this machine")
      return nil
    end
    local path = folder .. "/" .. page
    local file = assert(io.open(path, "wb"))
    file:write(html)
    file:close()
    local output = table.concat(lines(("env -u LD_PRELOAD timeout 120 %s --headless \z
      --no-sandbox --disable-gpu --user-data-dir=%s/profile --enable-logging=stderr %s \z
      --dump-dom file://%s 2>&1"):format(browser, folder, options, path)), "\n")
    os.remove(path)
    local body = output:match("<body[^>]*>")
    if not body then
      pending("Chromium does not run here")
    end
    return body, output
  end

  it("searches, finds and switches the colours in a browser", function()
    -- a page that does what a reader would, and says in its body what came of it
    local act = [[<script>window.onerror = function (e) { document.body.dataset.error = e; };
      window.addEventListener("load", function () {
        var root = document.documentElement, input = document.getElementById("search");
        var before = root.dataset.theme;
        document.getElementById("theme").click();
        document.body.dataset.switched = before !== root.dataset.theme;
        input.value = "fit"; input.oninput();
        document.body.dataset.first = document.querySelector("#found a").getAttribute("href");
        input.value = "qwertzuiop"; input.oninput();
        document.body.dataset.none = document.getElementById("found").textContent;
      });</script></body>]]
    local body = browse("act.html", texts["index.html"]:gsub("</body>", function()
      return act
    end), "--virtual-time-budget=3000")
    if body then
      assert.is_falsy(body:find("data-error", 1, true), body)
      assert.is_truthy(body:find('data-switched="true"', 1, true), body)
      assert.is_truthy(body:find('data-first="reference_module.html#Module.fit"', 1, true), body)
      assert.is_truthy(body:find('data-none="No section has these words."', 1, true), body)
    end
  end)

  -- a frame of 390 pixels goes through all pages and notes those that are wider
  it("shows every page on 390 pixels, none wider, no word too small, no error", function()
    local names = {}
    for name in pairs(texts) do
      names[#names + 1] = name:find("%.html$") and '"' .. name .. '"' or nil
    end
    local body, output = browse("narrow.html", ([[<body data-wide="" data-small=""><iframe id="frame"
      style="width: 390px; height: 800px; border: 0"></iframe><script>
      var pages = [%s], i = 0, frame = document.getElementById("frame");
      frame.onload = function () {
        var page = frame.contentDocument;
        if (Math.max(page.documentElement.scrollWidth, page.body.scrollWidth) > 390)
          document.body.dataset.wide += pages[i] + " ";
        for (var image of page.images)                   // a drawing's words keep their size
          if (/svg$/.test(image.src) && image.clientWidth < 0.99 * image.naturalWidth)
            document.body.dataset.small += image.src + " ";
        i += 1;
        document.body.dataset.seen = i;
        if (i < pages.length) frame.src = pages[i];
      };
      frame.src = pages[0];</script></body>]]):format(table.concat(names, ",")),
      "--allow-file-access-from-files --virtual-time-budget=60000")
    if body then
      assert.is_truthy(body:find('data-seen="' .. #names .. '"', 1, true), body)
      assert.is_truthy(body:find('data-wide=""', 1, true), body)
      assert.is_truthy(body:find('data-small=""', 1, true), body)
      assert.is_falsy(output:match("[^\n]*CONSOLE[^\n]*"))
    end
  end)
end)

describe("colours of code", function()
  local colours = require "doc.colours"

  local function plain(html)
    return (html:gsub("<[^>]*>", ""):gsub("&lt;", "<"):gsub("&gt;", ">"):gsub("&quot;", '"')
      :gsub("&amp;", "&"))
  end

  local CODE = {
    lua = 'local s = "a \\" -- b" .. [[do]] -- end <i>\nfor x in y do end_ = 1e-3 end --[[ a\nb ]]',
    c = '#include "a.h"\n/* int\n if */ static int f(void) { return 0x1f + 1.5f; } // "\n',
    sh = "make -j2 all   # builds\necho \"$HOME\" && for f in *; do ls --all; done",
    tycho = "> x = 1 -- one\n1\n>> 'a'",
    other = "if <b> & \"c\"",
  }
  for language, code in pairs(CODE) do
    it("keep every character of " .. language, function()
      assert.equal(code, plain(colours.html(language, code)))
    end)
  end

  it("know words, texts, comments and numbers", function()
    local lua, c, sh = colours.html("lua", CODE.lua), colours.html("c", CODE.c),
      colours.html("sh", CODE.sh)
    assert.is_truthy(lua:find('<span class="word">local</span>', 1, true))
    assert.is_truthy(lua:find('<span class="note">-- end &lt;i&gt;</span>', 1, true))
    assert.is_truthy(lua:find('<span class="note">--[[ a\nb ]]</span>', 1, true))
    assert.is_truthy(lua:find('<span class="text">[[do]]</span>', 1, true))
    assert.is_truthy(lua:find('<span class="number">1e-3</span>', 1, true))
    assert.is_falsy(lua:find('<span class="word">end_', 1, true))
    assert.is_truthy(c:find('<span class="note">/* int\n if */</span>', 1, true))
    assert.is_truthy(c:find('<span class="word">#include</span>', 1, true))
    assert.is_truthy(c:find('<span class="word">return</span>', 1, true))
    assert.is_truthy(sh:find('<span class="note"># builds</span>', 1, true))
    assert.is_truthy(sh:find('<span class="word">done</span>', 1, true))
  end)

  it("lead from names of the library to where they are described", function()
    local html = colours.html("lua", "x = ty.nd.ones{2} + ty.mine", function(name)
      return name == "ty.nd.ones" and "there.html" or nil
    end)
    assert.equal('x = <a href="there.html">ty.nd.ones</a>{<span class="number">2</span>} + ty.mine',
      html)
  end)
end)

describe("Markdown", function()
  local markdown = require "doc.markdown"

  local function html(text, links)
    return markdown.html(text, links or {})
  end

  it("makes paragraphs, lists, numbered lists, code and tables", function()
    assert.equal("<p>a <b>b</b> <code>&lt;c&gt;</code></p>", html "a **b** `<c>`")
    assert.equal('<p class="picture"><img alt="a" src="b.svg"></p>', html "![a](b.svg)")
    assert.equal("<ul>\n<li>a\nb</li>\n<li>c</li>\n</ul>", html "- a\n  b\n- c")
    assert.equal("<ol>\n<li>a\nb</li>\n<li>c</li>\n</ol>", html "1. a\n   b\n2. c")
    assert.equal('<p>a</p>\n<pre class="text">b\n\nc</pre>\n<p>d</p>',
      html "a\n\n    b\n\n    c\n\nd")
    assert.equal('<pre class="sh"><span class="note"># x</span></pre>', html "```sh\n# x\n```")
    assert.equal('<div class="wide"><table>\n<tr><th>a</th><th>b</th></tr>\n'
      .. "<tr><td>1</td><td><code>x|y</code></td></tr>\n</table></div>",
      html "| a | b |\n|---|---|\n| 1 | `x|y` |")
  end)

  it("makes headings with a place, links, and links of code", function()
    assert.is_truthy(html "## A b (c)":find('<h2 id="a-b-c">A b (c)', 1, true))
    assert.equal('<p><a href="b.html">a</a></p>', html("[a](b.md)", {
      target = function(link) return (link:gsub("md$", "html")) end }))
    assert.equal('<p><a href="m.html"><code>fit</code></a></p>', html("`fit`", {
      code = function(code) return code == "fit" and "m.html" or nil end }))
  end)
end)
