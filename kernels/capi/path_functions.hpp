// Declarations of the functions of the path that is being compiled.
#pragma once
#include "../ff/config.hpp"
#include "path_table.hpp"

namespace cuzk {
namespace CUZK_PATH {

#define X(name, type, parameters) type name parameters;
CUZK_PATH_FUNCTIONS(X)
#undef X

}  // namespace CUZK_PATH
}  // namespace cuzk
