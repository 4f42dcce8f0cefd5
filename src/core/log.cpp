#include "core/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>

namespace qkscope {

void set_up_logging(Verbosity verbosity) {
  auto logger = std::make_shared<spdlog::logger>(
      "qkscope", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
  logger->set_pattern("%^%l%$: %v");
  switch (verbosity) {
    case Verbosity::quiet:
      logger->set_level(spdlog::level::err);
      break;
    case Verbosity::normal:
      logger->set_level(spdlog::level::info);
      break;
    case Verbosity::verbose:
      logger->set_level(spdlog::level::debug);
      break;
  }
  spdlog::set_default_logger(std::move(logger));
}

}  // namespace qkscope
