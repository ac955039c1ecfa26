-- Syntax colouring of code as HTML: Lua, C, shell, sessions at the prompt. Unknown tokens stay
-- plain.
--
--     colours.html("lua", code, link)    link(name): the address of what a name is, or nil

local colours = {}

local function set(words)
  local list = {}
  for word in words:gmatch("%S+") do
    list[word] = true
  end
  return list
end

local WORDS = {
  lua = set "and break do else elseif end false for function goto if in local nil not or repeat \z
    return then true until while",
  c = set "break case char const continue do double else enum extern float for if int long return \z
    short sizeof static struct switch typedef unsigned void while size_t int64_t uint32_t NULL",
  sh = set "case do done elif else esac export fi for if in then while cd",
}


-- Returns the position of the last character of a string that begins at i.
local function quoted(code, i)
  local quote = code:match("^[\"']", i)
  if not quote then
    return nil
  end
  local last = i + 1
  while last < #code and code:sub(last, last) ~= quote do
    last = last + (code:sub(last, last) == "\\" and 2 or 1)
  end
  return last
end


local function pattern(p)
  return function(code, i)
    return select(2, code:find(p, i))
  end
end


-- Returns a rule that matches only at the beginning of a word.
local function apart(p)
  return function(code, i)
    local before = i == 1 and "\n" or code:sub(i - 1, i - 1)
    return before:find("%s") and select(2, code:find(p, i)) or nil
  end
end

-- Rules for the tokens of a language, in the order in which they are tried: class, and a function
-- of the code and a position that returns the position of the token's last character.
local RULES = {
  lua = {
    { "note", pattern "^%-%-%[(=*)%[.-%]%1%]" }, { "note", pattern "^%-%-[^\n]*" },
    { "text", pattern "^%[(=*)%[.-%]%1%]" }, { "text", quoted },
    { "number", pattern "^0x%x+" }, { "number", pattern "^%d+%.?%d*[eE]?%-?%d*" },
    { "name", pattern "^ty%.[%a_][%w_%.]*" }, { "name", pattern "^[%a_][%w_]*" },
  },
  c = {
    { "note", pattern "^/%*.-%*/" }, { "note", pattern "^//[^\n]*" }, { "text", quoted },
    { "word", apart "^#%s*%a+" }, { "number", pattern "^0x%x+" },
    { "number", pattern "^%d[%d%.]*[eE]?%-?%d*[fLUu]*" }, { "name", pattern "^[%a_][%w_]*" },
  },
  sh = {
    { "note", apart "^#[^\n]*" }, { "text", quoted }, { "number", pattern "^%$[%w_{}]+" },
    { "number", apart "^%-%-?%a[%w-]*" }, { "name", pattern "^[%a_][%w_%-/%.]*" },
  },
}


--- Escapes the characters that have a meaning in HTML.
function colours.escape(text)
  return (text:gsub("[&<>\"]", { ["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;",
    ['"'] = "&quot;" }))
end


-- Returns the token that begins at i: its class and the position of its last character.
local function token(rules, code, i)
  for _, rule in ipairs(rules) do
    local last = rule[2](code, i)
    if last and last >= i then
      return rule[1], last
    end
  end
  return nil, i
end


local function coloured(class, text, words, link)
  if class == "name" then
    class = words[text] and "word" or nil
    local address = not class and link and text:find(".", 1, true) and link(text)
    if address then
      return ('<a href="%s">%s</a>'):format(address, colours.escape(text))
    end
  end
  text = colours.escape(text)
  return class and ('<span class="%s">%s</span>'):format(class, text) or text
end


local function in_language(language, code, link)
  local rules, out, i = RULES[language], {}, 1
  while i <= #code do
    local class, last = token(rules, code, i)
    out[#out + 1] = coloured(class, code:sub(i, last), WORDS[language], link)
    i = last + 1
  end
  return table.concat(out)
end


-- Returns a session as HTML: lines with a prompt are input, the others output.
local function session(code, link)
  local out = {}
  for line in (code .. "\n"):gmatch("(.-)\n") do
    local sign, typed = line:match("^(>>? ?)(.*)$")
    out[#out + 1] = sign and '<span class="note">' .. colours.escape(sign) .. "</span>"
      .. in_language("lua", typed, link) or colours.escape(line)
  end
  return table.concat(out, "\n")
end


--- Returns code as HTML.
-- @string language "lua", "c", "sh", "tycho"; others stay plain
-- @string code
-- @func[opt] link
function colours.html(language, code, link)
  if language == "tycho" then
    return session(code, link)
  end
  return RULES[language] and in_language(language, code, link) or colours.escape(code)
end


return colours
