// The adder of this code path.
#pragma once
#include "batch_add.hpp"
#ifdef CUZK_PATH_IFMA
#include "batch_add_ifma.hpp"
#endif

namespace cuzk {
namespace CUZK_PATH {

#ifdef CUZK_PATH_IFMA
template <class F>
using PairAdder = BatchAdderX8<F>;
#else
template <class F>
using PairAdder = BatchAdder<F>;
#endif

}  // namespace CUZK_PATH
}  // namespace cuzk
