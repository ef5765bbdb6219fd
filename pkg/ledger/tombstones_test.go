package ledger

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/types"
)

func TestTombstonesRememberTheLast(t *testing.T) {
	const size = 5
	stones := newTombstones(size)
	uid := func(i int) types.UID { return types.UID(fmt.Sprint("pod-", i)) }
	for i := range 100 {
		stones.add(uid(i), uint64(i))
		for k := max(0, i-size+1); k <= i; k++ {
			version, gone := stones.at(uid(k))
			assert.True(t, gone, "pod %d is forgotten after %d", k, i)
			assert.Equal(t, uint64(k), version)
		}
		assert.False(t, stones.has(uid(i-2*size)), "pod %d is remembered after %d", i-2*size, i)
		assert.LessOrEqual(t, len(stones.recent)+len(stones.earlier), 2*size)
	}
}

func TestTombstonesOfTheSamePod(t *testing.T) {
	stones := newTombstones(2)
	stones.add("", 1)
	assert.False(t, stones.has(""), "a pod without a UID cannot be told from others")
	stones.add("a", 5)
	stones.add("a", 3)
	assert.True(t, stones.newerOrSame("a", 5), "the newest version counts")
	assert.False(t, stones.newerOrSame("a", 6))
	assert.False(t, stones.newerOrSame("a", 0), "an unknown version is taken for new")
	stones.add("b", 1)
	stones.add("c", 1)
	stones.add("a", 1) // known from before the others
	assert.True(t, stones.newerOrSame("a", 5))
	stones.forget("a")
	assert.False(t, stones.has("a"))
}
