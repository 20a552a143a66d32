"""The same run on real sites, over Flower: a coordinator (ServerApp), and sites (ClientApp) that keep their data."""
