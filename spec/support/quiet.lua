-- Returns a log that writes nothing and collects the texts of warnings and errors in `warnings`.
return function()
  local log = { warnings = {} }
  function log.info() end
  function log:warning(text) self.warnings[#self.warnings + 1] = text end
  log.debug, log.error = log.info, log.warning
  return log
end
