"""What single AWS resource types do beyond keeping their inputs."""
