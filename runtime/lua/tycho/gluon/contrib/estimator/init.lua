--- Training of gluon networks without writing the loop: `ty.gluon.contrib.estimator`.
--
--     local estimator = ty.gluon.contrib.estimator
--     local loss = ty.gluon.loss.SoftmaxCrossEntropyLoss()
--     local e = estimator.Estimator{ net, loss, trainer = trainer }
--     e:fit{ train_data = loader, val_data = other, epochs = 4,
--            event_handlers = { estimator.EarlyStoppingHandler(e.val_metrics[1]) } }
--
-- @module tycho.gluon.contrib.estimator

local handlers = require "tycho.gluon.contrib.estimator.handlers"
local namespace = require "tycho.core.namespace"

return namespace.close({
  BatchProcessor = require "tycho.gluon.contrib.estimator.batch_processor",
  CheckpointHandler = require "tycho.gluon.contrib.estimator.checkpoint",
  EarlyStoppingHandler = handlers.EarlyStoppingHandler,
  Estimator = require "tycho.gluon.contrib.estimator.estimator",
  GradientUpdateHandler = handlers.GradientUpdateHandler,
  LoggingHandler = handlers.LoggingHandler,
  MetricHandler = handlers.MetricHandler,
  StoppingHandler = handlers.StoppingHandler,
  ValidationHandler = handlers.ValidationHandler,
}, "contrib.estimator", "class")
