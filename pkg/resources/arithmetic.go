package resources

import "math"

// Add returns a+b, or the nearest int64 where the sum has none; exact is false
// then. Amounts from objects that are not validated may be absurdly large.
func Add(a, b int64) (sum int64, exact bool) {
	sum = a + b
	if (a >= 0) == (b >= 0) && (sum >= 0) != (a >= 0) {
		if a >= 0 {
			return math.MaxInt64, false
		}
		return math.MinInt64, false
	}
	return sum, true
}

// Sub returns a-b, or the nearest int64 where the difference has none.
func Sub(a, b int64) int64 {
	diff := a - b
	if (a >= 0) != (b >= 0) && (diff >= 0) != (a >= 0) {
		if a >= 0 {
			return math.MaxInt64
		}
		return math.MinInt64
	}
	return diff
}
