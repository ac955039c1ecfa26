--- Readable text of counts, bytes, durations and rates.
--
-- @module tycho.core.units

local units = {}

local COUNTS = { { 1e12, "T" }, { 1e9, "G" }, { 1e6, "M" }, { 1e3, "k" } }
local BYTES = { { 2 ^ 40, "TB" }, { 2 ^ 30, "GB" }, { 2 ^ 20, "MB" }, { 2 ^ 10, "kB" } }


--- Returns a count in a few digits: "12", "3.4 k", "61.1 M", "1.5 G".
-- @number n
function units.count(n)
  for _, unit in ipairs(COUNTS) do
    if n >= unit[1] then
      return ("%.1f %s"):format(n / unit[1], unit[2])
    end
  end
  return ("%.0f"):format(n)
end


--- Returns a size as text: "1.2 GB", "310 MB"; units are powers of 1024.
-- @number bytes
function units.bytes(bytes)
  for _, unit in ipairs(BYTES) do
    if bytes >= unit[1] then
      local n = bytes / unit[1]
      return (n < 10 and "%.1f %s" or "%.0f %s"):format(n, unit[2])
    end
  end
  return ("%.0f B"):format(bytes)
end


--- Returns a duration as text: "4.5 s", "45 s", "12:34", "3:25:10".
-- @number seconds
function units.duration(seconds)
  local s = math.max(0, math.floor(seconds + 0.5))
  if seconds > 0 and seconds < 10 then
    return ("%.1f s"):format(seconds)
  elseif s < 60 then
    return ("%d s"):format(s)
  elseif s < 3600 then
    return ("%d:%02d"):format(math.floor(s / 60), s % 60)
  end
  return ("%d:%02d:%02d"):format(math.floor(s / 3600), math.floor(s / 60) % 60, s % 60)
end


--- Returns a rate as text: "1234 samples/s", with a digit after the point below 10.
-- @number rate
function units.rate(rate)
  return (rate < 10 and "%.1f samples/s" or "%.0f samples/s"):format(rate)
end


return units
