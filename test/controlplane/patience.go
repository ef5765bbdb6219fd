package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// PatienceEnv names the environment variable with the factor by which Patience is longer, for slow machines.
const PatienceEnv = "GLOBALRESERVE_TEST_PATIENCE"

// Patience is how long tests, and what they start, wait for what has to come. It is a net: far more than all of it
// takes on a quiet machine, so that nothing is proven by its being enough.
var Patience = patience(os.Getenv(PatienceEnv))

func patience(factor string) time.Duration {
	const one = 2 * time.Minute
	if f, err := strconv.ParseFloat(factor, 64); err == nil && f > 0 {
		return time.Duration(f * float64(one))
	}
	return one
}

// Await asks until there is nothing in the way any more, and says what it waits for where that takes too long.
func Await(ctx context.Context, what string, ask func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, pollInterval, Patience, true, func(ctx context.Context) (bool, error) {
		last = ask(ctx)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("wait until %s: %w", what, errors.Join(err, last))
	}
	return nil
}
