#include "copus/sim/comparison_svg.h"
namespace copus {
std::string comparison_svg(const Comparison&, const std::string&) { return ""; }
}  // namespace copus
