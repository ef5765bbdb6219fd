package devices

func walkReadme(c *cluster) {}
