#include "copus/base/units.h"

#include <gtest/gtest.h>

#include <type_traits>

namespace copus {
namespace {

template <typename A, typename B>
concept Addable = requires(A a, B b) {
  a + b;
};
template <typename A, typename B>
concept Multipliable = requires(A a, B b) {
  a* b;
};
template <typename A, typename B>
concept Divisible = requires(A a, B b) {
  a / b;
};
template <typename A, typename B>
concept Comparable = requires(A a, B b) {
  a < b;
};

TEST(Units, OnlyMeaningfulOperationsCompile) {
  EXPECT_TRUE((Addable<Bytes, Bytes>));
  EXPECT_FALSE((Addable<Bytes, Seconds>));
  EXPECT_FALSE((Addable<Bytes, double>));
  EXPECT_FALSE((Multipliable<Seconds, Seconds>));
  EXPECT_FALSE((Divisible<Seconds, Bytes>));
  EXPECT_FALSE((Divisible<Bytes, FlopsPerSec>));
  EXPECT_FALSE((Comparable<Bytes, Flops>));
  EXPECT_FALSE((std::is_convertible_v<double, Bytes>));
  EXPECT_FALSE((std::is_convertible_v<Bytes, double>));
}

TEST(Units, RatesTurnAmountsIntoTimesAndBack) {
  const Bytes amount(6e9);
  const BytesPerSec rate = gigabytes_per_s(3);
  const Seconds time = amount / rate;
  EXPECT_DOUBLE_EQ(time.v, 2);
  EXPECT_DOUBLE_EQ((rate * time).v, amount.v);
  EXPECT_DOUBLE_EQ((amount / time).v, rate.v);

  const Flops work(1e15);
  EXPECT_DOUBLE_EQ((work / teraflops(500)).v, 2);
  EXPECT_DOUBLE_EQ((teraflops(500) * Seconds(2)).v, work.v);
  EXPECT_DOUBLE_EQ((work / Seconds(2)).v, teraflops(500).v);
}

TEST(Units, AQuotientOfEqualUnitsIsANumber) {
  const double ratio = Seconds(6) / Seconds(4);
  EXPECT_DOUBLE_EQ(ratio, 1.5);
}

TEST(Units, ScaleAddAndSubtract) {
  Seconds total;
  EXPECT_DOUBLE_EQ(total.v, 0);
  total += Seconds(3);
  total -= Seconds(1);
  EXPECT_EQ(total, Seconds(2));
  EXPECT_EQ(2 * total + total * 3 - total / 2, Seconds(9));
}

TEST(Units, MaxAndMinCompareValues) {
  EXPECT_EQ(max(Seconds(1), Seconds(2)), Seconds(2));
  EXPECT_EQ(min(Seconds(1), Seconds(2)), Seconds(1));
  EXPECT_LT(Bytes(1), Bytes(2));
}

TEST(Units, NamedUnitsHaveTheirSiSize) {
  EXPECT_DOUBLE_EQ(gib(80).v, 85899345920.0);
  EXPECT_DOUBLE_EQ(to_gib(gib(80)), 80);
  EXPECT_DOUBLE_EQ(gigabits_per_s(400).v, 50e9);
  EXPECT_DOUBLE_EQ(microseconds(4).v, 4e-6);
}

}  // namespace
}  // namespace copus
