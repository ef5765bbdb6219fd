package arbiter

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestExamplesAreTheFirstInOrder(t *testing.T) {
	var examples []string
	for _, name := range []string{"e", "g", "a", "f", "c", "h", "b", "d"} {
		examples = addExample(examples, name)
	}
	assert.Equal(t, []string{"a", "b", "c", "d", "e"}, examples)
}
