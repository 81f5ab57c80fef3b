#include "path_functions.hpp"

namespace cuzk {
namespace CUZK_PATH {

extern const PathTable table;
const PathTable table = {
#define X(name, type, parameters) &name,
    CUZK_PATH_FUNCTIONS(X)
#undef X
};

}  // namespace CUZK_PATH
}  // namespace cuzk
