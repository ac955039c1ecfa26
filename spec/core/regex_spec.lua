-- Regular expressions of names (runtime/lua/tycho/core/regex.lua): what fits, what is refused.

local regex = require "tycho.core.regex"

-- pattern -> texts that fit, texts that do not
local CASES = {
  { "fc_weight|fc_bias", { "fc_weight", "fc_bias", "fc_bias2" }, { "fc_gamma", "my_fc_bias" } },
  { [[fc\d+_(weight|bias)$]], { "fc1_weight", "fc12_bias" }, { "fc_weight", "fc1_bias2" } },
  { ".*weight", { "fc_weight", "weight", "a_weights" }, { "bias" } },
  { "", { "", "anything" }, {} },
  { "a||b$", { "a", "", "c" }, {} },
  { "^conv[0-3a]_", { "conv0_x", "conva_x" }, { "conv4_x", "xconv0_" } },
  { "[^0-9]+$", { "abc" }, { "ab1", "1" } },
  { "[]x-]+$", { "]x-" }, { "y" } },
  { [[[\d_]+$]], { "1_2" }, { "a" } },
  { "a{2,3}$", { "aa", "aaa" }, { "a", "aaaa" } },
  { "(ab){2}$", { "abab" }, { "ab", "ababab" } },
  { "a{2,}b", { "aab", "aaaab" }, { "ab" } },
  { "a{,1}b", { "b", "ab" }, { "aab" } },
  { "(?:a|b)*?c", { "c", "abbac" }, { "abd" } },
  { "(?P<layer>fc|conv)_", { "fc_x", "conv_x" }, { "bn_x" } },
  { "(?!.*bias|.*beta).*", { "fc_weight", "" }, { "fc_bias", "bn_beta", "bias" } },
  { "fc(?=\\d+_w)\\d+_", { "fc12_weight" }, { "fc12_bias", "fc_weight" } },
  { "(?:a(?!b))+$", { "a", "aaa" }, { "ab", "aab" } },
  { "a(?!(?=b)b)", { "a", "ac" }, { "ab" } },
  { "(a*)*b", { "aab", "b" }, { "aac" } },
  { [[fc\b]], { "fc", "fc." }, { "fc1" } },
  { [[\w+\s\S\W$]], { "ab c-" }, { "ab cd" } },
  { [[a\.b\%]], { "a.b%" }, { "axb%" } },
  { "((){9999}){9999}a", { "a" }, { "" } },
  { ".", { "x" }, { "", "\n" } },
}

-- pattern -> a part of the error
local REFUSED = {
  { "fc%d", "'%d' belongs to Lua's patterns" },
  { "[%w_]+", "'%w' belongs to Lua's patterns" },
  { "fc.-weight", "'.-' belongs to Lua's patterns" },
  { "(a", "a '(' is not closed" },
  { "a)", "a ')' has no '('" },
  { "[a", "a '[' is not closed" },
  { "[b-a]", "the range 'b-a' is empty" },
  { "*a", "nothing is there for '*'" },
  { "a**", "two repetitions" },
  { "a{3,2}", "'{3,2}' is no number of times" },
  { "(?<=a)", "'(?<' is not known" },
  { "(?!a", "a '(' is not closed" },
  { [[(a)\1]], [['\1' is not known]] },
  { "a\\", "it ends in a backslash" },
  { "((a{100}){100}){100}", "it repeats too much" },
  { "((|a){9999}){9999}", "it repeats too much" },
}

describe("a regular expression", function()
  for _, case in ipairs(CASES) do
    local pattern, good, bad = unpack(case)
    it(("'%s' fits what it should"):format(pattern), function()
      local fits = regex.matcher(pattern, "f", "pattern")
      for _, text in ipairs(good) do
        assert.is_true(fits(text), text)
      end
      for _, text in ipairs(bad) do
        assert.is_false(fits(text), text)
      end
    end)
  end

  for _, case in ipairs(REFUSED) do
    local pattern, words = unpack(case)
    it(("'%s' is refused"):format(pattern), function()
      local ok, e = pcall(regex.matcher, pattern, "init.Mixed", "patterns")
      assert.is_false(ok)
      assert.equal("value", e.code)
      assert.equal("init.Mixed", e.func)
      assert.truthy(e.message:find(words, 1, true), e.message)
      assert.truthy(e.message:find("regular expressions", 1, true))
    end)
  end

  it("takes time in proportion to the text", function()
    local fits = regex.matcher("(a|a)*(a|a)*b", "f", "pattern")
    local start = os.clock()
    assert.is_false(fits(("a"):rep(5000)))
    assert.is_true(os.clock() - start < 5)
  end)

  it("is a function of the name where one is given", function()
    assert.equal(print, regex.matcher(print, "f", "pattern"))
  end)
end)
