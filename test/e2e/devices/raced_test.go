//go:build e2e || chaos

package devices

import "fmt"

// What is raced for.
const (
	raceNodes   = 5
	raceDevices = 20
	racePods    = 40
)

// createRaceDevices creates the devices that are raced for.
func (c *cluster) createRaceDevices() {
	c.T.Helper()
	for i := range raceDevices {
		c.CreateDevice(fmt.Sprintf("gpu-%d", i), fmt.Sprintf("node-%d", i%raceNodes), "K80")
	}
}
