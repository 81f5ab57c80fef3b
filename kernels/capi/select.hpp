// From the numbers of the C interface to types.
#pragma once
#include "../ec/curves.hpp"

namespace cuzk {
namespace CUZK_PATH {

template <class T>
struct Type {
  using type = T;
};

template <class F>
auto with_curve(int curve, F &&f) {
  return curve == 0 ? f(Type<Bn254>{}) : f(Type<Bls12_381>{});
}

template <class F>
auto with_fr(int curve, F &&f) {
  return curve == 0 ? f(Type<Bn254Fr>{}) : f(Type<Bls12_381Fr>{});
}

// field: cuzk_field.
template <class F>
auto with_field(int curve, int field, F &&f) {
  return with_curve(curve, [&](auto c) {
    using Curve = typename decltype(c)::type;
    if (field == 0) return f(Type<typename Curve::Fr>{});
    if (field == 1) return f(Type<typename Curve::Fq>{});
    return f(Type<typename Curve::Fq2>{});
  });
}

// f(curve, field of the coordinates); group: cuzk_group.
template <class F>
auto with_group(int curve, int group, F &&f) {
  return with_curve(curve, [&](auto c) {
    using Curve = typename decltype(c)::type;
    if (group == 1) return f(c, Type<typename Curve::Fq>{});
    return f(c, Type<typename Curve::Fq2>{});
  });
}

}  // namespace CUZK_PATH
}  // namespace cuzk
