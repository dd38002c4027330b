// Draws a comparison as an SVG picture: loss over time, and batch and layout over time.
#pragma once

#include <string>

#include "copus/sim/comparison.h"

namespace copus {

// Returns a whole SVG document, legible on a light and on a dark page. `title` says what was
// compared, for example "llama-3.2-3b on 1x8xH100-80GB-SXM".
std::string comparison_svg(const Comparison& comparison, const std::string& title);

}  // namespace copus
