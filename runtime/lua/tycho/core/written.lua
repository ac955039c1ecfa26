--- The text that a function has printed and also returns (not for users).
--
-- The prompt, which shows results, then does not show it a second time.
--
-- @module tycho.core.written

local written = {}

--- The text that was printed last; nil where there is none.
written.text = nil

return written
